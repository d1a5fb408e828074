"""Whether a job's checkpoints still arrive in S3 while it trains.

Uploads have been known to stop while the training went on and every status said that all was well; only the bucket
tells. A thread lists it now and then, so that no log line waits for it, and the follower looks at what it found. All
times are those of the services: the age of the newest file is the difference of two of S3's own, whatever the clock of
this machine says.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from smdp_launch.jobs.checkpoints.listing import Checkpoints, Listing, list_checkpoints
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import Trouble, reason, trouble
from smdp_launch.jobs.status.description import Description


@dataclass(frozen=True)
class CheckpointsStalled:
    """No file has come to S3 for longer than the job's rhythm explains; told once of each silence.

    Args:
        where: the S3 location.
        time_ms: milliseconds since 1970 of the last file, or of the training's beginning where none has come since.
        lasted: seconds since then.
        limit: seconds of silence after which this is told.
        longest: seconds of the longest gap between two files before; None while no rhythm is known.
        newest: the last file, below ``where``; None where none has come since the training began.
        files: how many lie there, with those of earlier.
        size: their bytes.
        step_then: the last step that the script had reported when the last file came, if it did.
        step_now: the last that it has reported.
    """

    where: str
    time_ms: int
    lasted: float
    limit: float
    longest: float | None
    newest: str | None
    files: int
    size: int
    step_then: int | None
    step_now: int | None


@dataclass(frozen=True)
class CheckpointKept:
    """A file has come after a silence that was told, at ``time_ms``, ``lasted`` seconds after the one before."""

    where: str
    time_ms: int
    lasted: float
    newest: str
    files: int
    size: int


@dataclass(frozen=True)
class CheckpointsUnseen:
    """They cannot be listed, so nobody will be told when they stop coming. Told once, until it passes."""

    where: str
    reason: str


CheckpointNews = CheckpointsStalled | CheckpointKept | CheckpointsUnseen


@dataclass(frozen=True)
class Silence:
    """How often to look, and what a silence is; all but the factor in seconds (docs/jobs.md has the reasons).

    Args:
        interval: between two looks, for each page of the listing.
        longest_interval: the most that it grows to.
        unknown: a silence while the rhythm is not known, or nothing has come since the training began; and how long
            files must have come before their rhythm is believed.
        shortest: a silence at the least.
        factor: a silence as a multiple of the longest gap.
    """

    interval: float = 60.0
    longest_interval: float = 600.0
    unknown: float = 1800.0
    shortest: float = 600.0
    factor: float = 3.0


@dataclass
class Rhythm:
    """What the times of a job's files say about when the next is due.

    The longest gap is what counts, so the many short ones between the files of one checkpoint change nothing. The time
    from the training's beginning to the first file is no gap: data is read and kernels are compiled in it.
    """

    silence: Silence = field(default_factory=Silence)
    longest: float = 0.0
    is_known: bool = False
    _longest_first: float = 0.0
    _began: datetime | None = None
    _first: datetime | None = None
    _last: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """The last file's time, or the training's beginning where none has come since."""
        return self._last or self._began

    @property
    def has_come(self) -> bool:
        """Whether a file has come since the training began."""
        return self._last is not None

    @property
    def limit(self) -> float:
        """Seconds after `since` from which on it is a silence."""
        if self.is_known and self.has_come:
            return max(self.silence.shortest, self.silence.factor * self.longest)
        return max(self.silence.unknown, self.silence.factor * max(self.longest, self._longest_first))

    def begin(self, at: datetime) -> bool:
        """The hosts train from ``at``; anew after an interruption, which is nobody's silence. Whether that is news."""
        # S3 tells whole seconds: what came within the first one did not come before it.
        began = at.replace(microsecond=0)
        is_new = began != self._began
        if is_new:
            self._began, self._first, self._last = began, None, None
        return is_new

    def learn(self, times: Sequence[datetime], was_told: bool = False) -> list[datetime]:
        """Take the files' times, in any order and again and again; those that are new, sorted.

        Args:
            was_told: of a silence before the first of them. It counts as no longer than it took to be told, or one
                fault would make the next look like the rhythm.
        """
        if self._began is None:
            return []
        new = sorted({one for one in times if one >= self._began and (self._last is None or one > self._last)})
        for at in new:
            gap = (at - (self._last or self._began)).total_seconds()
            self._take(at, gap, was_told and at == new[0])
        return new

    def _take(self, at: datetime, gap: float, was_told: bool) -> None:
        if self._first is None:
            self._first, self._longest_first = at, max(self._longest_first, gap)
        else:
            self.longest = max(self.longest, min(gap, self.limit) if was_told and self.is_known else gap)
            self.is_known = self.is_known or (at - self._first).total_seconds() >= self.silence.unknown
        self._last = at


@dataclass
class Steps:
    """The steps that the script has reported, with their times in milliseconds: the last, and of those before it as
    many as fit, evenly over the time."""

    most: int = 4096
    now: int | None = None
    _now_ms: int = 0
    _times: list[int] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)
    _apart: float = 0.0  # milliseconds between two that are kept

    def note(self, time_ms: int, step: object) -> None:
        """Nothing, where ``step`` is no number of steps: a script may send anything."""
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
        """The last that is known to have been reported by then."""
        if self._now_ms <= time_ms:
            return self.now
        index = bisect_right(self._times, time_ms)
        return self._steps[index - 1] if index else None

    def forget(self, time_ms: int) -> None:
        """Those of which `at` that time, or a later one, will not tell."""
        index = max(0, bisect_right(self._times, time_ms) - 1)
        del self._times[:index], self._steps[:index]
        self._apart = 0.0


def in_a_thread(work: Callable[[], None]) -> None:
    """One that nobody waits for: whoever leaves the job leaves the question too."""
    threading.Thread(target=work, daemon=True).start()


@dataclass(frozen=True)
class _Look:
    """One that has come back, of the training that began at ``began``, asked for at ``asked`` of the follower's
    clock."""

    began: datetime
    asked: float
    found: Listing | Exception


@dataclass
class CheckpointWatch:
    """Looks at a job's checkpoints while the job trains; a job without has cost no call.

    Args:
        clock: seconds that never go back.
        start: runs the listing beside the follower.
    """

    clients: Clients
    silence: Silence = field(default_factory=Silence)
    clock: Callable[[], float] = time.monotonic
    start: Callable[[Callable[[], None]], object] = in_a_thread
    _due: float = 0.0
    _is_asking: bool = False
    _look: _Look | None = None  # written by the thread, once, and taken by the follower
    _came: float = 0.0  # when the newest file was seen first, by `clock`
    _newest: str | None = None  # the last that has come since the training began; it may be gone by now
    _told: bool = False  # of the silence that goes on
    _told_since: datetime | None = None  # when it began, until a file comes: it may outlast an interruption
    _unseen_since: float | None = None
    _is_told_unseen: bool = False

    def __post_init__(self) -> None:
        self.steps = Steps()
        self.rhythm = Rhythm(self.silence)
        self._due = self.clock()

    def look(self, job: Description, is_read: bool = True) -> Iterator[CheckpointNews]:
        """What is to be told now.

        Args:
            is_read: the log has been read up to the present. Until then a listing waits for it, as long as between
                two, so that the steps are known.
        """
        began = _trains_since(job)
        if job.checkpoints is None or began is None:
            return
        if not self._is_asking and self.clock() >= self._due + (0 if is_read else self.silence.interval):
            self._ask(job.checkpoints, began)
        look = self._look
        if look is None:
            return
        self._look, self._is_asking = None, False
        if look.began == began:  # else the hosts have begun anew meanwhile
            yield from self._judge(job.checkpoints, look)

    def _ask(self, where: str, began: datetime) -> None:
        s3, asked = self.clients.s3, self.clock()

        def work() -> None:
            self._look = _Look(began, asked, _listed(s3, where))

        self._is_asking = True
        try:
            self.start(work)
        except RuntimeError as error:  # this machine has no thread left
            self._look = _Look(began, asked, error)

    def _judge(self, where: str, look: _Look) -> Iterator[CheckpointNews]:
        if isinstance(look.found, Exception):
            yield from self._fail(where, look, look.found)
            return
        self._unseen_since, self._is_told_unseen = None, False
        self._due = look.asked + min(self.silence.longest_interval, self.silence.interval * look.found.pages)
        yield from self._come(look, look.found)
        yield from self._stall(where, look, look.found)

    def _come(self, look: _Look, found: Listing) -> Iterator[CheckpointKept]:
        if self.rhythm.begin(look.began):
            self._came, self._newest, self._told = look.asked, None, False
        new, kept = self.rhythm.learn(found.times, self._told), found.checkpoints
        if not new or kept is None:
            return
        self._came, self._newest, self._told = look.asked, kept.name, False
        self.steps.forget(_ms(kept.newest))
        since, self._told_since = self._told_since, None
        if since is not None:
            lasted = (new[0] - since).total_seconds()
            yield CheckpointKept(kept.where, _ms(kept.newest), lasted, kept.name, kept.files, kept.size)

    def _stall(self, where: str, look: _Look, found: Listing) -> Iterator[CheckpointsStalled]:
        since = self.rhythm.since
        if since is None or self._told:
            return
        lasted = (found.at - since).total_seconds() if found.at is not None else look.asked - self._came
        if lasted > self.rhythm.limit:
            self._told, self._told_since = True, self._told_since or since
            yield self._stalled(where, since, lasted, found.checkpoints)

    def _stalled(self, where: str, since: datetime, lasted: float, kept: Checkpoints | None) -> CheckpointsStalled:
        step_then = self.steps.at(_ms(since)) if self.rhythm.has_come else None
        return CheckpointsStalled(
            where,
            _ms(since),
            lasted,
            self.rhythm.limit,
            self.rhythm.longest if self.rhythm.is_known else None,
            self._newest,
            kept.files if kept is not None else 0,
            kept.size if kept is not None else 0,
            step_then,
            self.steps.now,
        )

    def _fail(self, where: str, look: _Look, error: Exception) -> Iterator[CheckpointsUnseen]:
        """A refusal is told at once and asked for seldom; an outage is told when it hides what would be a silence."""
        is_final = trouble(error) is Trouble.FINAL
        self._due = look.asked + (self.silence.longest_interval if is_final else self.silence.interval)
        self._unseen_since = look.asked if self._unseen_since is None else self._unseen_since
        is_long = look.asked - self._unseen_since >= self.silence.shortest
        if (is_final or is_long) and not self._is_told_unseen:
            self._is_told_unseen = True
            yield CheckpointsUnseen(where, reason(error))


def _listed(s3: Any, where: str) -> Listing | Exception:
    """Whatever goes wrong is told: it must not end what the listing is for."""
    try:
        return list_checkpoints(s3, where)
    except Exception as error:
        return error


def _trains_since(job: Description) -> datetime | None:
    if job.secondary != "Training":
        return None
    return next((one.began for one in reversed(job.steps) if one.status == "Training"), None)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
