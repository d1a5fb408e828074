"""Reports when a job's checkpoints stop arriving in S3 while the job trains.

Uploads may stop while training continues and every status is normal; only the bucket shows it. A thread lists the
bucket at intervals, so that no log line is delayed, and the follower evaluates the listing. All times are S3's or
SageMaker's: the age of the newest file is the difference of two times by S3's clock, so the local clock does not
matter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from smdp_launch.jobs.checkpoints.intervals import ReportedSteps, SaveIntervals, StallThresholds
from smdp_launch.jobs.checkpoints.listing import Checkpoints, Listing, list_checkpoints
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind, reason
from smdp_launch.jobs.status.description import Description


@dataclass(frozen=True)
class CheckpointsStalled:
    """No file has arrived in S3 for longer than the job's save interval explains. Reported once for each stall.

    Args:
        where: the S3 location.
        time_ms: milliseconds since 1970 of the last file, or of the start of training if no file has arrived since.
        lasted: seconds since then.
        limit: seconds after which the stall is reported.
        longest: seconds of the longest gap between two earlier files; None while the save interval is unknown.
        newest: the last file, relative to ``where``; None if no file has arrived since training began.
        files: number of files at ``where``, older files included.
        size: bytes of these files.
        step_then: the last step that the script had reported when the last file arrived, if any.
        step_now: the last step that it has reported until now.
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
    """A file has arrived at ``time_ms`` after a reported stall, ``lasted`` seconds after the file before it."""

    where: str
    time_ms: int
    lasted: float
    newest: str
    files: int
    size: int


@dataclass(frozen=True)
class CheckpointsUnseen:
    """The files cannot be listed, so no stall can be reported. Reported once, until a listing succeeds."""

    where: str
    reason: str


CheckpointEvent = CheckpointsStalled | CheckpointKept | CheckpointsUnseen


def start_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a daemon thread: it ends with the process, and nothing waits for it."""
    threading.Thread(target=work, daemon=True).start()


@dataclass(frozen=True)
class _Result:
    """Of one listing, with the start of training and the follower's clock at the time of the request."""

    began: datetime
    requested: float
    listing: Listing | Exception


@dataclass
class CheckpointWatch:
    """Lists a job's checkpoints at intervals while the job trains. A job without checkpoints costs no call.

    Args:
        clock: a monotonic clock, in seconds.
        start: runs the listing beside the follower.
    """

    clients: Clients
    thresholds: StallThresholds = field(default_factory=StallThresholds)
    clock: Callable[[], float] = time.monotonic
    start: Callable[[Callable[[], None]], object] = start_thread
    _due: float = 0.0
    _is_listing: bool = False
    _result: _Result | None = None  # written by the thread, taken by the follower
    _newest_since: float = 0.0  # when the newest file was first listed, by `clock`
    _newest: str | None = None  # the last file since training began; it may be deleted by now
    _is_reported: bool = False  # the current stall
    _stalled_since: datetime | None = None  # the start of the reported stall; an interruption of the job may fall in it
    _failing_since: float | None = None
    _is_failure_reported: bool = False

    def __post_init__(self) -> None:
        self.steps = ReportedSteps()
        self.intervals = SaveIntervals(self.thresholds)
        self._due = self.clock()

    def poll(self, job: Description, is_read: bool = True) -> Iterator[CheckpointEvent]:
        """Start a listing if one is due, and yield the events of the last one.

        Args:
            is_read: the log has been read up to now. Until then a listing is delayed by at most the interval, so that
                the steps are known.
        """
        began = _training_since(job)
        if job.checkpoints is None or began is None:
            return
        if not self._is_listing and self.clock() >= self._due + (0 if is_read else self.thresholds.interval):
            self._start_listing(job.checkpoints, began)
        result = self._result
        if result is None:
            return
        self._result, self._is_listing = None, False
        if result.began == began:  # otherwise the hosts were restarted in between
            yield from self._evaluate(job.checkpoints, result)

    def _start_listing(self, where: str, began: datetime) -> None:
        s3, requested = self.clients.s3, self.clock()

        def work() -> None:
            self._result = _Result(began, requested, _list(s3, where))

        self._is_listing = True
        try:
            self.start(work)
        except RuntimeError as error:  # the system allows no further thread
            self._result = _Result(began, requested, error)

    def _evaluate(self, where: str, result: _Result) -> Iterator[CheckpointEvent]:
        listing, requested = result.listing, result.requested
        if isinstance(listing, Exception):
            yield from self._failed(where, requested, listing)
            return
        self._failing_since, self._is_failure_reported = None, False
        self._due = requested + min(self.thresholds.longest_interval, self.thresholds.interval * listing.pages)
        if self.intervals.start(result.began):
            self._newest_since, self._newest, self._is_reported = requested, None, False
        yield from self._add_files(requested, listing)
        yield from self._check_stall(where, requested, listing)

    def _add_files(self, requested: float, listing: Listing) -> Iterator[CheckpointKept]:
        new, files = self.intervals.add(listing.times, self._is_reported), listing.checkpoints
        if not new or files is None:
            return
        self._newest_since, self._newest, self._is_reported = requested, files.name, False
        self.steps.forget(_ms(files.newest))
        since, self._stalled_since = self._stalled_since, None
        if since is not None:
            lasted = (new[0] - since).total_seconds()
            yield CheckpointKept(files.where, _ms(files.newest), lasted, files.name, files.files, files.size)

    def _check_stall(self, where: str, requested: float, listing: Listing) -> Iterator[CheckpointsStalled]:
        since = self.intervals.since
        if since is None or self._is_reported:
            return
        lasted = (listing.at - since).total_seconds() if listing.at is not None else requested - self._newest_since
        if lasted > self.intervals.limit:
            self._is_reported, self._stalled_since = True, self._stalled_since or since
            yield self._stalled(where, since, lasted, listing.checkpoints)

    def _stalled(self, where: str, since: datetime, lasted: float, files: Checkpoints | None) -> CheckpointsStalled:
        return CheckpointsStalled(
            where,
            _ms(since),
            lasted,
            self.intervals.limit,
            self.intervals.longest if self.intervals.is_known else None,
            self._newest,
            files.files if files is not None else 0,
            files.size if files is not None else 0,
            self.steps.at(_ms(since)) if self.intervals.has_files else None,
            self.steps.now,
        )

    def _failed(self, where: str, requested: float, error: Exception) -> Iterator[CheckpointsUnseen]:
        """A refusal is reported at once, and the next listing is late. An outage is reported when it has lasted for the
        shortest stall, which it could hide."""
        is_final = error_kind(error) is ErrorKind.FINAL
        self._due = requested + (self.thresholds.longest_interval if is_final else self.thresholds.interval)
        self._failing_since = requested if self._failing_since is None else self._failing_since
        is_long = requested - self._failing_since >= self.thresholds.shortest
        if (is_final or is_long) and not self._is_failure_reported:
            self._is_failure_reported = True
            yield CheckpointsUnseen(where, reason(error))


def _list(s3: Any, where: str) -> Listing | Exception:
    """Any error is a result: it must not end the follower."""
    try:
        return list_checkpoints(s3, where)
    except Exception as error:
        return error


def _training_since(job: Description) -> datetime | None:
    if job.secondary != "Training":
        return None
    return next((one.began for one in reversed(job.steps) if one.status == "Training"), None)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
