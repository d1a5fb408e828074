"""The numbers of a running job beside its progress bar, and in the lines where there is no terminal."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from rich.progress import ProgressColumn, Task
from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.sparkline import sparkline
from smdp_launch.jobs.status.cost import usd
from smdp_launch.jobs.status.description import Description, end_of
from smdp_launch.plain_text import without_controls
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.summary import left_text, main_metric, rate_text

#: Columns of the sparkline, and of the status and the bar, which need a place too.
_SPARKS, _BESIDE = 12, 26
#: A longer value of a metric's name is cut.
_LONGEST_NAME = 16
_REFRESH = 0.1  # seconds


@dataclass
class ShownRun:
    """What a view shows of a run. The follower's session fills it.

    Args:
        price: USD an hour of one host; None if it is unknown.
        waiting: a text in place of the numbers, while the service does not answer.
    """

    metrics: RunMetrics = field(default_factory=RunMetrics)
    description: Description | None = None
    price: float | None = None
    waiting: str = ""

    def numbers(self, width: int, encoding: str = "utf-8") -> str:
        """As many of the numbers as fit into ``width``, the most important ones first."""
        if self.waiting:
            return self.waiting
        shown: list[str] = []
        used = 0
        for one in self._parts(encoding):
            if one and used + len(one) <= width:
                shown.append(one)
                used += len(one) + 2
        order = {one: place for place, one in enumerate(self._ordered(encoding))}
        return "  ".join(sorted(shown, key=lambda one: order[one]))

    def elapsed(self) -> float | None:
        """Seconds since the job was created; of an ended job, those until its end."""
        if self.description is None:
            return None
        return max(0.0, (end_of(self.description) - self.description.created).total_seconds())

    def _ordered(self, encoding: str) -> list[str]:
        """The parts as they stand from left to right."""
        left = [self._step(), self._hang(), self._metric(), self._sparks(encoding)]
        return [*left, self._rate(), self._left(), self._cost()]

    def _parts(self, encoding: str) -> list[str]:
        """The parts by importance."""
        first = [self._hang(), self._step(), self._left(), self._metric()]
        return [*first, self._rate(), self._cost(), self._sparks(encoding)]

    def _hang(self) -> str:
        return self.metrics.hang.short if self.metrics.hang is not None else ""

    def _step(self) -> str:
        if self.metrics.step is None:
            return ""
        return f"step {self.metrics.step}" + (f"/{self.metrics.steps}" if self.metrics.steps is not None else "")

    def _metric(self) -> str:
        name = main_metric(self.metrics)
        last = self.metrics.metrics[name].shown() if name is not None else None
        return f"{without_controls(name)[:_LONGEST_NAME]} {last}" if name is not None and last is not None else ""

    def _sparks(self, encoding: str) -> str:
        name = main_metric(self.metrics)
        bins = self.metrics.metrics[name].bins if name is not None else []
        return sparkline([one.mean for one in bins], _SPARKS, encoding) if len(bins) > 1 else ""

    def _rate(self) -> str:
        return rate_text(self.metrics.steps_per_second, self.metrics.samples_per_second) or ""

    def _left(self) -> str:
        seconds = self.metrics.seconds_left
        return left_text(seconds) if seconds is not None and self.metrics.step != self.metrics.steps else ""

    def _cost(self) -> str:
        cost = usd(self.description, self.price) if self.description is not None else None
        return f"{cost:,.2f} USD" if cost is not None else ""

    def line(self, detail: str) -> str:
        """A line of a log: the step with its metrics, then the rate and the time left."""
        return "  ".join(one for one in (detail, self._rate(), self._left()) if one)


class NumbersColumn(ProgressColumn):
    """Beside the bar. The text is made when the bar is drawn, not for each event."""

    def __init__(self, shown: ShownRun, console: Console) -> None:
        super().__init__()
        self._shown, self._console = shown, console
        self._drawn, self._text = -math.inf, Text()

    def render(self, task: Task) -> Text:
        """Each log line draws the bar again: the numbers are new ten times a second."""
        now = time.monotonic()
        if now - self._drawn >= _REFRESH:
            self._drawn, self._text = now, self._numbers()
        return self._text

    def _numbers(self) -> Text:
        return Text(self._shown.numbers(self._console.width - _BESIDE, self._console.encoding), no_wrap=True)


class AgeColumn(ProgressColumn):
    """The time since the job was created, such as ``1:02:03``."""

    def __init__(self, shown: ShownRun) -> None:
        super().__init__()
        self._shown = shown

    def render(self, task: Task) -> Text:
        seconds = self._shown.elapsed()
        if seconds is None:
            return Text("-:--:--", "progress.elapsed")
        minutes, rest = divmod(int(seconds), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02}:{rest:02}", "progress.elapsed")
