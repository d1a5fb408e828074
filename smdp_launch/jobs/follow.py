"""Follows a job by its name: status changes, log lines and events.

The follower remembers its position in every log stream, so it can be interrupted and continued without losing or
repeating a line. It reports an outage of the service and waits for its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from smdp_launch.errors import ServiceProblem, WaitTimedOut
from smdp_launch.jobs.checkpoints.watch import CheckpointEvent, CheckpointWatch
from smdp_launch.jobs.logs.merge import WINDOW, Merge
from smdp_launch.jobs.logs.messages import JobEvent, LogLine, read_line
from smdp_launch.jobs.logs.streams import Streams
from smdp_launch.jobs.records.outcome import ENDED, Outcome, outcome, with_files_found
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.response_time import response_time
from smdp_launch.jobs.service.retry import LONGEST_OUTAGE, Outage
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import Description, description
from smdp_launch.jobs.status.interrupted_resume import explain_unknown
from smdp_launch.plain_text import without_controls

#: Pages that one poll reads of each stream at most: the user may interrupt it in between.
_PAGES = 4
#: Seconds that CloudWatch may need for the last lines of a job that has ended.
_SETTLES = 60.0
_SETTLE_GAP = 2.0  # seconds between two polls for such lines


@dataclass(frozen=True)
class StatusChanged:
    """The service's secondary status, such as Downloading, with its message.

    Args:
        before: the previous status; None for the first.
        lasted: seconds that the previous status lasted.
    """

    status: str
    message: str
    time_ms: int
    before: str | None = None
    lasted: float | None = None


@dataclass(frozen=True)
class ServiceRecovered:
    """The service answers again, ``lasted`` seconds after the first failed request."""

    lasted: float


Reached = ServiceRecovered
"""The former name of `ServiceRecovered`."""


@dataclass(frozen=True)
class Ended:
    """Args:
    has_all_lines: False if the timeout came while lines of the ended job were read or awaited.
    """

    outcome: Outcome
    has_all_lines: bool = True


FollowEvent = StatusChanged | LogLine | JobEvent | Waiting | ServiceRecovered | CheckpointEvent | Ended


class _PollInterrupted(Exception):
    """``clients.interrupted`` is set: no further call is made in this poll."""


class _EndedInTime(Exception):
    """The timeout has come, and the job had ended before."""


@dataclass
class Follower:
    """Polls one job. Use `events`, which polls until the job ends.

    Args:
        timeout: seconds from now after which no call is made, except the first one.
        watch: of the job's checkpoints, if it has any; None for one with the intervals of docs/how-to/jobs.md.

    Attributes:
        pause: seconds until the next poll is due.
        description: the job as the last poll saw it.
        had_ended: whether the job had ended when a poll first described it. If the first call failed: whether it had
            ended before that call. The clocks of this machine and of the service need not agree for this.
        request: the service's answer that it comes from.
        read_at: seconds since 1970, by the service's clock if it sends one, up to which every log has been read; None
            if the last poll has not read every log to its end.
    """

    clients: Clients
    job: str
    timeout: float | None = None
    clock: Callable[[], float] = time.monotonic
    watch: CheckpointWatch | None = None
    pause: float = field(default=0.0, init=False)
    description: Description | None = field(default=None, init=False)
    had_ended: bool = field(default=False, init=False)
    request: Mapping[str, Any] = field(default_factory=dict, init=False)
    read_at: float | None = field(default=None, init=False)
    _doing: str = ""  # the last call; empty before the first
    _described: Mapping[str, Any] | None = None  # of a poll that was interrupted, for the next one
    _described_at: float = 0.0
    _is_listed: bool = False
    _transitions: Sequence[Mapping[str, Any]] = ()
    _outage_lasted: float | None = None  # not yet reported
    _ended_since: float | None = None  # by `clock`, when a poll first saw the end
    _has_news: bool = False
    _is_settled: bool = False

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._deadline = math.inf if self.timeout is None else self._began + self.timeout
        self._outage = Outage(self.clients.retry_policy, self.clock)
        self._streams = Streams(self.clients, self.job, self._call)
        self._merge: Merge[StatusChanged | LogLine | JobEvent] = Merge(clock=self.clock)
        self._watch = self.watch or CheckpointWatch(self.clients, clock=self.clock)

    def events(self, wait: Callable[[float], bool | None] = time.sleep) -> Iterator[FollowEvent]:
        """Poll until the job ends; ``Ended`` is the last event. Raises as `poll` does.

        Args:
            wait: waits for the given seconds between two polls; True ends the iteration.
        """
        while True:
            for event in self.poll():
                yield event
                if isinstance(event, Ended):
                    return
            if wait(self.pause):
                return

    def poll(self) -> Iterator[FollowEvent]:
        """Yield the events since the last poll in order of time, ``Ended`` last. Exhaust it.

        If a call fails, or ``clients.interrupted`` ends this poll, the next poll continues at the same position. A
        failed call yields ``Waiting``.

        Raises:
            ServiceProblem: the service refuses, does not know the job, or has not answered for a day.
            WaitTimedOut: the job has not ended within ``timeout``.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        self.pause, self.read_at = self.clients.poll, None
        try:
            described = self._begin()
            yield from self._recovery()
            for one in self._new_lines():
                yield from self._recovery()
                self._has_news = self._has_news or not isinstance(one, StatusChanged)
                self._note_step(one)
                yield one
        except (ClientError, BotoCoreError) as error:
            yield from self._merge.take(self._streams.behind)
            yield self._wait(error)
            return
        except _PollInterrupted:
            return
        except _EndedInTime:
            yield from self._merge.rest()
            yield Ended(outcome(with_files_found(self.clients.quick, self.request)), has_all_lines=False)
            return
        finally:
            self.pause = max(0.0, min(self.pause, self._deadline - self.clock()))
        yield from self._recovery()
        self.read_at = None if self._streams.behind else self._described_at
        if self.description is not None:
            yield from self._watch.poll(self.description, not self._streams.behind)
        self._described, self._is_listed = None, False
        if described["TrainingJobStatus"] in ENDED and self._is_whole(described):
            yield from self._merge.rest()
            yield Ended(outcome(with_files_found(self.clients.quick, described)))
        self._has_news = False

    def _begin(self) -> Mapping[str, Any]:
        """The job and its streams as of now. The answers of an interrupted poll are used again."""
        described = self._described
        if described is None:
            # Before the logs are read: if the job has ended by now, all of its lines can be read.
            described = self._described = self.request = self._call(
                f"job {self.job} cannot be followed",
                lambda: self.clients.sagemaker.describe_training_job(TrainingJobName=self.job),
            )
            now = datetime.now(timezone.utc)
            self._described_at = (response_time(described) or now).timestamp()
            known, self.description = self.description, description(described, now)
            self.had_ended = self.had_ended if known is not None else self._ended_before(described)
            self._merge.window = WINDOW if self.description.hosts > 1 else 0
            for one in self._status_changes(described):
                self._merge.note(one)
        if not self._is_listed:
            self._streams.refresh()
            self._is_listed = True
        return described

    def _ended_before(self, described: Mapping[str, Any]) -> bool:
        """Whether the first description is that of a job that had ended before this follower began."""
        if described["TrainingJobStatus"] not in ENDED:
            return False
        at = response_time(described)
        if self._outage_lasted is None or at is None:
            return True
        return at.timestamp() - (self.clock() - self._began) > _end_of(described).timestamp()

    def _note_step(self, one: StatusChanged | LogLine | JobEvent) -> None:
        if isinstance(one, JobEvent) and one.name == "step":
            self._watch.steps.note(one.time_ms, one.fields.get("step"))

    def _call(self, doing: str, call: Callable[[], Any]) -> Any:
        if self.clock() >= self._deadline and self._doing:
            if self.description is not None and self.description.outcome is not None:
                raise _EndedInTime
            raise WaitTimedOut(f"{self.job} has not ended within {self.timeout:g} s; it continues")
        if self.clients.interrupted.is_set():
            raise _PollInterrupted
        self._doing = doing
        answer = call()
        lasted = self._outage.record_success()
        self._outage_lasted = self._outage_lasted if lasted is None else lasted
        return answer

    def _recovery(self) -> Iterator[ServiceRecovered]:
        if self._outage_lasted is not None:
            lasted, self._outage_lasted = self._outage_lasted, None
            yield ServiceRecovered(lasted)

    def _wait(self, error: Exception) -> Waiting:
        waiting = self._outage.record_failure(self._doing, error)
        if waiting.error_kind is ErrorKind.FINAL or self._outage.lasted > LONGEST_OUTAGE:
            with explain_unknown(self.job):
                raise ServiceProblem(f"{waiting.what}: {waiting.reason}") from error
        self.clients.renew(waiting.error_kind)
        self.pause = waiting.again_in
        return waiting

    def _status_changes(self, described: Mapping[str, Any]) -> Iterator[StatusChanged]:
        """New transitions, and the last one again if its message has changed: while a job waits for capacity, the
        message gives the reason."""
        before, now = self._transitions, described.get("SecondaryStatusTransitions", [])
        start = len(before)
        if before and len(now) >= start and now[start - 1].get("StatusMessage") != before[-1].get("StatusMessage"):
            start -= 1
        self._transitions = now
        for index in range(start, len(now)):
            yield _change(now[index], now[index - 1] if index else None)

    def _new_lines(self) -> Iterator[StatusChanged | LogLine | JobEvent]:
        for _ in range(_PAGES * len(self._streams.behind)):
            page = self._streams.page()
            if page is None:
                break
            self._merge.add(page.stream, (read_line(page.host, text, at) for at, text in page.messages))
            yield from self._merge.take(self._streams.behind)
        if self._streams.behind:
            self.pause = 0.0
        yield from self._merge.take(self._streams.behind)

    def _is_whole(self, described: Mapping[str, Any]) -> bool:
        """Whether all lines of the ended job have been read. On AWS the last lines may arrive after the end: they have
        all arrived when two polls in a row find none, or after `_SETTLES`. The clock of this machine may be wrong, so
        it is not compared with the time of the end."""
        self._ended_since = self.clock() if self._ended_since is None else self._ended_since
        if self._streams.behind:
            return False
        self.pause = min(self.pause, _SETTLE_GAP)
        was_settled, self._is_settled = self._is_settled, not self._has_news
        if was_settled and not self._has_news:
            return True
        at = response_time(described)
        lasted = (at - _end_of(described)).total_seconds() if at is not None else 0.0
        return max(lasted, self.clock() - self._ended_since) > _SETTLES


def _end_of(described: Mapping[str, Any]) -> datetime:
    """The end of a job that has ended, by the service's clock."""
    end: datetime = described.get("TrainingEndTime") or described["LastModifiedTime"]
    return end


def _change(transition: Mapping[str, Any], before: Mapping[str, Any] | None) -> StatusChanged:
    began = transition["StartTime"]
    return StatusChanged(
        str(transition["Status"]),
        without_controls(str(transition.get("StatusMessage", ""))),
        int(began.timestamp() * 1000),
        str(before["Status"]) if before is not None else None,
        (began - before["StartTime"]).total_seconds() if before is not None else None,
    )
