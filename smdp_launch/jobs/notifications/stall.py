"""Finds a job that reports no step for much longer than its steps take."""

from __future__ import annotations

from collections import deque
from statistics import median

#: A gap is a stall if it is so many times the usual interval between two step events, and so many seconds.
_TIMES, _LEAST = 10, 300.0
#: Intervals that are compared, and those that are needed.
_KEPT, _NEEDED = 50, 3


class StallWatch:
    """Compares the time since the last step event with the median of the intervals before it. Times are in seconds."""

    def __init__(self) -> None:
        self._intervals: deque[float] = deque(maxlen=_KEPT)
        self._last: float | None = None
        self._reported: float | None = None

    def step(self, at: float) -> None:
        if self._last is not None and at > self._last:
            self._intervals.append(at - self._last)
        self._last = max(at, self._last or at)

    def stalled_since(self, now: float) -> float | None:
        """The time of the last step, once for each stall; None if there is none, or it was reported."""
        if self._last is None or len(self._intervals) < _NEEDED or self._reported == self._last:
            return None
        if now - self._last <= max(_LEAST, _TIMES * median(self._intervals)):
            return None
        self._reported = self._last
        return self._last
