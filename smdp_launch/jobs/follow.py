"""Following a job: its status, its log lines and its events, from its name alone.

The follower keeps its place in every stream, so it can be left and taken up again without losing or doubling a line;
an outage is told and waited for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from smdp_launch.errors import ServiceProblem, WaitTimedOut
from smdp_launch.jobs.checkpoints.watch import CheckpointNews, CheckpointWatch
from smdp_launch.jobs.logs.merge import WINDOW, Merge
from smdp_launch.jobs.logs.messages import JobEvent, LogLine, read_line
from smdp_launch.jobs.logs.streams import Streams
from smdp_launch.jobs.records.outcome import ENDED, Outcome, outcome, with_model_found
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import Trouble
from smdp_launch.jobs.service.retry import Outage
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import Description, description
from smdp_launch.jobs.status.never_created import never_created_told
from smdp_launch.plain_text import without_controls

#: Pages that one look reads of each stream at most: a person may want to say something in between.
_PAGES = 4
#: Seconds that the last lines of a job may need to CloudWatch after it has ended.
_SETTLES = 60.0
_SETTLE_GAP = 2.0  # seconds between two looks for such lines
_LONGEST_OUTAGE = 86400.0  # seconds


@dataclass(frozen=True)
class StatusChanged:
    """The service's secondary status, such as Downloading, with its message.

    Args:
        before: the status that it follows; None for the first.
        lasted: seconds that the one before lasted.
    """

    status: str
    message: str
    time_ms: int
    before: str | None = None
    lasted: float | None = None


@dataclass(frozen=True)
class Reached:
    """The service answers again, ``lasted`` seconds after it was first waited for."""

    lasted: float


@dataclass(frozen=True)
class Ended:
    outcome: Outcome


Seen = StatusChanged | LogLine | JobEvent | Waiting | Reached | CheckpointNews | Ended


class _BrokenOff(Exception):
    """Somebody wants to say something before the next question."""


@dataclass
class Follower:
    """Reads what is new of one job at each ``look``; ``pause`` tells the seconds until the next is due.

    Args:
        timeout: seconds from now after which no question is put any more.
        watch: of the job's checkpoints, if it has any; None for one with the intervals of docs/jobs.md.
    """

    clients: Clients
    job: str
    timeout: float | None = None
    clock: Callable[[], float] = time.monotonic
    watch: CheckpointWatch | None = None
    pause: float = field(default=0.0, init=False)
    description: Description | None = field(default=None, init=False)
    _doing: str = ""
    _described: Mapping[str, Any] | None = None  # as of the look that goes on
    _is_listed: bool = False
    _transitions: Sequence[Mapping[str, Any]] = ()
    _reached: float | None = None
    _found: bool = False
    _settled: bool = False

    def __post_init__(self) -> None:
        self._deadline = math.inf if self.timeout is None else self.clock() + self.timeout
        self._outage = Outage(self.clients.patience)
        self._streams = Streams(self.clients, self.job, self._put)
        self._merge: Merge[StatusChanged | LogLine | JobEvent] = Merge(clock=self.clock)
        self._watch = self.watch or CheckpointWatch(self.clients, clock=self.clock)

    def look(self) -> Iterator[Seen]:
        """What has happened since the last look, by time; ``Ended`` is the last of all. Exhaust it.

        What cannot be read for now is a ``Waiting``, and the next look takes it up where it was; as it does where
        ``clients.interrupted`` ends this one.

        Raises:
            ServiceProblem: the service refuses, does not know the job, or has not answered for a day.
            WaitTimedOut: the job has not ended within ``timeout``.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        self.pause = self.clients.poll
        try:
            described = self._begin()
            yield from self._back()
            for one in self._new_lines():
                yield from self._back()
                self._found = self._found or not isinstance(one, StatusChanged)
                self._note_step(one)
                yield one
        except (ClientError, BotoCoreError) as error:
            yield from self._merge.take(self._streams.behind)
            yield self._wait(error)
            return
        except _BrokenOff:
            return
        finally:
            self.pause = max(0.0, min(self.pause, self._deadline - self.clock()))
        yield from self._back()
        if self.description is not None:
            yield from self._watch.look(self.description, not self._streams.behind)
        self._described, self._is_listed = None, False
        if described["TrainingJobStatus"] in ENDED and self._is_whole(described):
            yield from self._merge.rest()
            yield Ended(outcome(with_model_found(self.clients.quick, described)))
        self._found = False

    def _begin(self) -> Mapping[str, Any]:
        """The job and its streams as of now; what was asked before a look was cut off is not asked again."""
        described = self._described
        if described is None:
            # Before the logs are read: when it says that the job has ended, every line is there to read.
            described = self._described = self._put(
                f"job {self.job} cannot be followed",
                lambda: self.clients.sagemaker.describe_training_job(TrainingJobName=self.job),
            )
            self.description = description(described, datetime.now(timezone.utc))
            self._merge.window = WINDOW if self.description.hosts > 1 else 0
            for one in self._status_changes(described):
                self._merge.note(one)
        if not self._is_listed:
            self._streams.look()
            self._is_listed = True
        return described

    def _note_step(self, one: StatusChanged | LogLine | JobEvent) -> None:
        if isinstance(one, JobEvent) and one.name == "step":
            self._watch.steps.note(one.time_ms, one.fields.get("step"))

    def _put(self, doing: str, question: Callable[[], Any]) -> Any:
        if self.clock() >= self._deadline:
            raise WaitTimedOut(f"{self.job} has not ended within {self.timeout:g} s; it goes on")
        if self.clients.interrupted.is_set():
            raise _BrokenOff
        self._doing = doing
        answer = question()
        lasted = self._outage.is_over()
        self._reached = self._reached if lasted is None else lasted
        return answer

    def _back(self) -> Iterator[Reached]:
        if self._reached is not None:
            lasted, self._reached = self._reached, None
            yield Reached(lasted)

    def _wait(self, error: Exception) -> Waiting:
        waiting = self._outage.goes_on(self._doing, error)
        lasted = time.time() - waiting.since
        if waiting.trouble is Trouble.FINAL or lasted > _LONGEST_OUTAGE:
            with never_created_told(self.job):
                raise ServiceProblem(f"{waiting.what}: {waiting.reason}") from error
        self.clients.renew(waiting.trouble)
        self.pause = waiting.again_in
        return waiting

    def _status_changes(self, described: Mapping[str, Any]) -> Iterator[StatusChanged]:
        """Transitions that are new, and the last one again where its message has changed: while a job waits for
        capacity, that says why."""
        told, now = self._transitions, described.get("SecondaryStatusTransitions", [])
        start = len(told)
        if told and len(now) >= start and now[start - 1].get("StatusMessage") != told[-1].get("StatusMessage"):
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
        """Whether all lines of a job that has ended are here. On AWS the last may come after the end is told: only
        a second look that finds nothing is sure of it."""
        if self._streams.behind:
            return False
        self.pause = min(self.pause, _SETTLE_GAP)
        settled, self._settled = self._settled, not self._found
        ended = described.get("TrainingEndTime") or described["LastModifiedTime"]
        return (settled and not self._found) or time.time() - ended.timestamp() > _SETTLES


def _change(transition: Mapping[str, Any], before: Mapping[str, Any] | None) -> StatusChanged:
    began = transition["StartTime"]
    return StatusChanged(
        str(transition["Status"]),
        without_controls(str(transition.get("StatusMessage", ""))),
        int(began.timestamp() * 1000),
        str(before["Status"]) if before is not None else None,
        (began - before["StartTime"]).total_seconds() if before is not None else None,
    )
