"""When each rank last made progress, and what it has usually needed for a step.

Two sources: the event `timing`, which the engine's package writes for each rank every few seconds, and the event
`step`, which the script prints. Steps, loaded batches and saved checkpoints are progress. A rank that saves a
checkpoint or evaluates counts as busy for `LONGEST_BUSY_S`.
"""

from __future__ import annotations

import json
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Any, Mapping

from smdp_entrypoint.contract.settings import HangSettings

# An evaluation without a loader, or one save, may take this many seconds without other progress.
LONGEST_BUSY_S = 1800.0
# The first steps compile and allocate: the usual time is known after so many more.
_FEWEST_STEPS = 3
_SAMPLES = 31
_EVENT = '{"smdp_event":'
_BUSY = ("checkpoint_s", "evaluation_s")
_PHASES = ("input", "copy", "forward", "backward", "exchange", "optimizer", "checkpoint", "logging", "evaluation")
#: The phase in which a rank waits for other ranks.
EXCHANGE = "exchange"
INPUT = "input"
#: Any time that belongs to no other phase: after the last step, but also from the end of a backward pass to the next
#: batch, where a rank may wait for its GPU.
OTHER = "other"
#: A rank in one of these has not made its last step.
IN_STEP = (INPUT, "forward", "backward", "optimizer")


@dataclass
class RankProgress:
    """One rank's. All times are monotonic seconds. `phase` is the one of the last window, None if it is not known;
    `waits_for` and `operation` come from the engine's flight recorder."""

    rank: int
    last: float | None = None
    phase: str | None = None
    waits_for: tuple[int, ...] = ()
    operation: str = ""
    step: int | None = None
    is_done: bool = False  # the script has reported its last step
    _window: float = 0.0
    _busy_since: float | None = None
    _seen: int = 0

    def __post_init__(self) -> None:
        self._timed: deque[float] = deque(maxlen=_SAMPLES)
        self._reported: deque[float] = deque(maxlen=_SAMPLES)
        self._last_report: float | None = None

    def read(self, line: str, now: float, *, by_engine: bool) -> None:
        """Take what an event line of this rank's script, or its engine, says; any other line says nothing."""
        if not line.startswith(_EVENT):
            return
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(fields, dict):
            return
        if by_engine and fields.get("event") == "timing" and fields.get("rank") == self.rank:
            self._read_timing(fields, now)
        elif not by_engine and fields.get("event") == "step":
            self._read_step(fields, now)

    @property
    def usual(self) -> float | None:
        """Seconds of a step, or from one report of a step to the next where only those are known."""
        if self._seen < _FEWEST_STEPS:
            return None
        samples = self._timed or self._reported
        return statistics.median(samples) if samples else None

    def limit(self, settings: HangSettings) -> float | None:
        """Seconds without progress after which this rank hangs; None while nothing is known about its steps."""
        usual = self.usual
        if usual is None or self.is_done:
            return None
        # Progress is seen at the end of a window only.
        return max(settings.after, settings.factor * usual, 2 * self._window)

    def idle(self, now: float) -> float:
        """Seconds since the last progress."""
        return max(0.0, now - self.last) if self.last is not None else 0.0

    def may_have_stopped(self, now: float, seconds: float) -> bool:
        """Whether this rank may have stopped together with others that hang for so many ``seconds``: it has made no
        progress since, or it is busy, or nothing is known about its steps."""
        return self.last is None or self._busy_since is not None or self.idle(now) >= seconds / 2

    def _read_timing(self, fields: Mapping[str, Any], now: float) -> None:
        steps, window = _number(fields, "steps"), _number(fields, "window")
        self._window = window
        self.phase = _phase(fields, window)
        waits = fields.get("waits_for")
        self.waits_for = tuple(one for one in waits if isinstance(one, int)) if isinstance(waits, list) else ()
        operation = fields.get("operation")
        self.operation = operation[:80] if isinstance(operation, str) else ""
        if steps:
            if self.last is not None:
                self._seen += int(steps)
                # A step may be longer than a window.
                self._timed.append(max(window, now - self.last) / steps)
            self._progress(now)
        elif _number(fields, "batches") or _number(fields, "checkpoints"):
            self._progress(now)
        elif self.last is not None and sum(_number(fields, name) for name in _BUSY) > window / 2:
            self._busy_since = self._busy_since if self._busy_since is not None else now
            if now - self._busy_since < LONGEST_BUSY_S:
                self.last = now

    def _read_step(self, fields: Mapping[str, Any], now: float) -> None:
        step, steps = fields.get("step"), fields.get("steps")
        if self._last_report is not None:
            self._reported.append(now - self._last_report)
            if not self._timed:
                self._seen += 1
        self._last_report = now
        if isinstance(step, int) and isinstance(steps, int):
            self.step, self.is_done = step, step >= steps > 0
        self._progress(now)

    def _progress(self, now: float) -> None:
        self.last = now
        self._busy_since = None


def _phase(fields: Mapping[str, Any], window: float) -> str | None:
    """The phase that filled the window; None if none did."""
    longest = max(_PHASES, key=lambda name: _number(fields, f"{name}_s"))
    if _number(fields, f"{longest}_s") > window / 2:
        return longest
    return OTHER if _number(fields, "other_s") > window / 2 else None


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 0.0
