"""A running job for a person: lines by host and rank, the status, and a progress bar from step events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeGuard

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.cli.render.console import Console, without_controls
from smdp_launch.jobs.follow import Ended, JobEvent, LogLine, Seen, StatusChanged
from smdp_launch.planning.plan import Plan

_HOST_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
#: Where there is no terminal to redraw a bar in, a line for each tenth of the way, and one a minute on a long one.
_TENTHS = 10
_LONGEST_QUIET = 60.0  # seconds between two such lines
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})


class FollowView:
    """Draws to standard output; a bar only if that is a terminal that may be told to move its cursor."""

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._hosts = sorted({one.host for one in plan.ranks})
        self._ranks = {one.rank: one.local_rank for one in plan.ranks}
        self._width = max(len(one) for one in self._hosts) + 1 + len(str(len(plan.ranks) - 1))
        self._started = time.monotonic()
        self._tenth = -1
        self._told = self._started  # when the last line of a step was printed
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal and self._console.color_system is not None:
            self._bar = Progress(
                TextColumn("{task.description}", style="bold"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[told]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> FollowView:
        if self._bar is not None:
            self._task = self._bar.add_task("Pending", total=None, told="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The bar away, so that a question can be asked."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def say(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def show(self, seen: Seen) -> None:
        if isinstance(seen, LogLine):
            self._line(seen)
        elif isinstance(seen, StatusChanged):
            self._status(seen)
        elif isinstance(seen, JobEvent):
            self._event(seen)
        elif isinstance(seen, Ended) and self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=seen.outcome.status)

    def _line(self, line: LogLine) -> None:
        who = line.host if line.rank is None else f"{line.host}:{line.rank}"
        text = Text(f"{who:<{self._width}} | ", self._style(line.host, line.rank))
        text.append_text(Text.from_ansi(without_controls(line.text)))
        self._console.print(text)

    def _style(self, host: str, rank: int | None) -> str:
        """A colour a host; workers of one host alternate between plain and bold, the entrypoint is dim."""
        index = self._hosts.index(host) if host in self._hosts else 0
        colour = _HOST_COLOURS[index % len(_HOST_COLOURS)]
        if rank is None:
            return f"dim {colour}"
        return f"bold {colour}" if self._ranks.get(rank, 0) % 2 else colour

    def _status(self, change: StatusChanged) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=change.status)
        elapsed = time.monotonic() - self._started
        message = f": {change.message}" if change.message else ""
        self._console.print(Text(f"{elapsed:6.1f} s  {change.status}{message}", "bold"))

    def _event(self, event: JobEvent) -> None:
        if event.name == "step":
            self._step(event.fields)
        elif event.name == "worker_exit":
            who, error = f"rank {event.fields.get('rank')} on {event.host}", str(event.fields.get("error"))
            told = error if error.startswith(who) else f"{who} failed: {error}"
            self._console.print(Text(without_controls(told), "bold red"))
        elif event.name == "workers_started":
            ranks = event.fields.get("ranks")
            master = event.fields.get("master")
            self._console.print(Text(f"{event.host} started ranks {ranks}; rank 0 listens at {master}", "dim"))

    def _step(self, fields: Mapping[str, Any]) -> None:
        done, total = fields.get("step"), fields.get("steps")
        if not (_is_count(done) and _is_count(total) and total > 0):
            return
        told = "  ".join([f"step {done}/{total}", *metrics(fields)])
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total, told=told)
        elif done * _TENTHS // total > self._tenth or time.monotonic() - self._told >= _LONGEST_QUIET:
            self._tenth = done * _TENTHS // total
            self._told = time.monotonic()
            self._console.print(Text(told, "bold"))


def _is_count(value: object) -> TypeGuard[int]:
    """A number of steps that can be drawn; a script may send anything."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def metrics(fields: Mapping[str, Any]) -> list[str]:
    """``name value`` for each field of an event that is not the envelope's."""
    return [
        without_controls(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
        for name, value in fields.items()
        if name not in _ENVELOPE
    ]
