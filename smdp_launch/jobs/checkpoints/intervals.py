"""Save intervals and reported steps of a job: what the checkpoint watch compares a listing with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class StallThresholds:
    """How often to list the files, and which gap is a stall. All in seconds except the factor (reasons in
    docs/how-to/jobs.md).

    Args:
        interval: between two listings, for each page of the listing.
        longest_interval: upper limit of that interval.
        unknown: the shortest gap that is a stall while the save interval is unknown, or no file has been saved since
            training began. Files must be saved for so long until the save interval is known.
        shortest: the shortest gap that can be a stall.
        factor: a gap is a stall if it is so many times longer than the longest gap before.
    """

    interval: float = 60.0
    longest_interval: float = 600.0
    unknown: float = 1800.0
    shortest: float = 600.0
    factor: float = 3.0


@dataclass
class SaveIntervals:
    """When the next file is due, from the times of a job's files.

    Only the longest gap counts, so the short gaps between the files of one checkpoint do not matter. The time from the
    start of training to the first file is not a gap, since the script reads data and compiles kernels in it.
    """

    thresholds: StallThresholds = field(default_factory=StallThresholds)
    longest: float = 0.0
    is_known: bool = False
    _longest_first: float = 0.0
    _began: datetime | None = None
    _first: datetime | None = None
    _last: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """The time of the last file, or the start of training if no file has been saved since then."""
        return self._last or self._began

    @property
    def has_files(self) -> bool:
        """Whether a file has been saved since training began."""
        return self._last is not None

    @property
    def limit(self) -> float:
        """The gap after `since`, in seconds, that is a stall."""
        if self.is_known and self.has_files:
            return max(self.thresholds.shortest, self.thresholds.factor * self.longest)
        return max(self.thresholds.unknown, self.thresholds.factor * max(self.longest, self._longest_first))

    def start(self, at: datetime) -> bool:
        """The hosts train since ``at``, which changes after an interruption. Return whether it has changed."""
        # S3 gives whole seconds: a file of the first second must not count as older.
        began = at.replace(microsecond=0)
        is_new = began != self._began
        if is_new:
            self._began, self._first, self._last = began, None, None
        return is_new

    def add(self, times: Sequence[datetime], after_stall: bool = False) -> list[datetime]:
        """Add the times of files, in any order; known times may be repeated. Return the new ones, sorted.

        Args:
            after_stall: a stall was reported before the first new file. The gap counts only up to the limit at which it
                was reported; otherwise one fault would raise the limit for the next.
        """
        if self._began is None:
            return []
        new = sorted({one for one in times if one >= self._began and (self._last is None or one > self._last)})
        for at in new:
            gap = (at - (self._last or self._began)).total_seconds()
            self._add(at, gap, after_stall and at == new[0])
        return new

    def _add(self, at: datetime, gap: float, after_stall: bool) -> None:
        if self._first is None:
            self._first, self._longest_first = at, max(self._longest_first, gap)
        else:
            self.longest = max(self.longest, min(gap, self.limit) if after_stall and self.is_known else gap)
            self.is_known = self.is_known or (at - self._first).total_seconds() >= self.thresholds.unknown
        self._last = at


@dataclass
class ReportedSteps:
    """The steps that the script has reported, with their times in milliseconds: the last step, and a sample of the
    earlier ones that is even over time."""

    most: int = 4096
    now: int | None = None
    _now_ms: int = 0
    _times: list[int] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)
    _apart: float = 0.0  # milliseconds between two steps of the sample

    def note(self, time_ms: int, step: object) -> None:
        """Add a step. A ``step`` that is no valid number is ignored: a script may report anything."""
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 1 << 53 or time_ms < self._now_ms:
            return
        self.now, self._now_ms = step, time_ms
        if self._times and time_ms < self._times[-1] + self._apart:
            return
        self._times.append(time_ms)
        self._steps.append(step)
        if len(self._times) > self.most:
            self._apart = 2 * (time_ms - self._times[0]) / self.most
            del self._times[1::2], self._steps[1::2]

    def at(self, time_ms: int) -> int | None:
        """The last known step that was reported by then."""
        if self._now_ms <= time_ms:
            return self.now
        index = bisect_right(self._times, time_ms)
        return self._steps[index - 1] if index else None

    def forget(self, time_ms: int) -> None:
        """Drop the steps that `at` does not need for this time or a later one."""
        index = max(0, bisect_right(self._times, time_ms) - 1)
        del self._times[:index], self._steps[:index]
        self._apart = 0.0
