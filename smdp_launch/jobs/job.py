"""A launched job: status, events, logs, results, stop and resume, by its name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.diagnosis.verdict import Verdict, diagnose
from smdp_launch.errors import WaitTimedOut
from smdp_launch.jobs.checkpoints.listing import Checkpoints, list_checkpoints
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent, StatusChanged
from smdp_launch.jobs.input_record import record_input
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.logs.read import LogFilter, read_lines
from smdp_launch.jobs.records.history import LOCAL, record_end
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.resume import AlreadyResumed, prepare, resume
from smdp_launch.jobs.retries import due_retry
from smdp_launch.jobs.run import add_event, read_metrics
from smdp_launch.jobs.service.clients import Clients, Connect, ignore_waiting
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.service.retry_policy import SINGLE_TRY, Waiting
from smdp_launch.jobs.status.description import Description, describe
from smdp_launch.jobs.submit import stop
from smdp_launch.jobs.transfer.download import Download, Progress, download
from smdp_launch.notebook_view import LiveView, NotebookView
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.summary import progress_text, totals_text
from smdp_launch.source.scan import RESULTS_FOLDER

#: ``where`` of a job in the region of the AWS configuration.
UNKNOWN_REGION = "AWS"


@dataclass
class Job(NotebookView):
    """One job, on AWS or in the local cloud.

    Every method that calls the service raises ServiceProblem if the service refuses or does not answer for a minute,
    and EnvironmentProblem if there are no credentials or they have expired.

    Args:
        name: as in its plan, and in the SageMaker console.
        where: the AWS region, or ``local``.
        output: the S3 location of its results; None for a job that was found by its name.
        last_seen: its status at the last call.
        outcome: the outcome of the job; None until a call has shown that the job has ended.
        on_waiting: called with each ``Waiting``: the service is busy or unreachable, and the call is retried.
        numbers: the values that the job had reported at the last `follow`, `wait`, `watch` or `metrics`.
        last_description: the answer of the last call that described the job.
        seen_running: whether a call of this object found the job running, or launched it. `wait` does not retry a job
            that had ended before.
        earlier: the names of the failed jobs that `wait` has resumed, in order; ``name`` is the last one.
    """

    name: str
    where: str
    output: str | None
    connect: Connect = field(repr=False, compare=False)
    last_seen: str = field(default="Submitted", compare=False)
    outcome: Outcome | None = field(default=None, compare=False, repr=False)
    on_waiting: Callable[[Waiting], None] = field(default=ignore_waiting, compare=False, repr=False)
    numbers: RunMetrics = field(default_factory=RunMetrics, compare=False, repr=False)
    last_description: Description | None = field(default=None, compare=False, repr=False)
    seen_running: bool = field(default=False, compare=False, repr=False)
    earlier: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def tell(self) -> Callable[[Waiting], None]:
        """The former name of ``on_waiting``."""
        return self.on_waiting

    @tell.setter
    def tell(self, call: Callable[[Waiting], None]) -> None:
        self.on_waiting = call

    @property
    def region(self) -> str | None:
        """None for a local job, or for the region of the AWS configuration."""
        return None if self.where in (LOCAL, UNKNOWN_REGION) else self.where

    def status(self) -> str:
        """The service's secondary status as of now, such as ``Downloading`` or ``Training``."""
        return self.describe().secondary

    def describe(self) -> Description:
        """The job as the service describes it now: its status, how long each step took, and how it ended."""
        with self.connected() as clients:
            description = describe(clients, self.name)
        self.last_seen, self.last_description = description.secondary, description
        self.seen_running = self.seen_running or description.outcome is None
        if description.outcome is not None:
            self._note_end(description.outcome)
        return description

    def checkpoints(self, description: Description | None = None) -> Checkpoints | None:
        """The files at its checkpoint location now; None if there are none, or the job has no such location.

        Args:
            description: the job as the service describes it; by default the service is called.
        """
        with self.connected() as clients:
            where = (description or self.describe()).checkpoints
            if where is None:
                return None
            once = replace(clients, retry_policy=SINGLE_TRY)  # the S3 client retries by itself
            what = f"the checkpoints of {self.name} cannot be listed"
            return call_with_retries(once, what, lambda: list_checkpoints(clients.s3, where)).checkpoints

    def follow(self, timeout: float | None = None) -> Iterator[FollowEvent]:
        """Yield all events of the job from its start, in order: status changes, log lines, events; ``Ended`` last.

        The lines of several hosts are merged by time, which delays them by up to two seconds. An outage of the service
        or the network, or expired credentials, do not end the iteration: they yield ``Waiting`` and
        ``ServiceRecovered``.

        Args:
            timeout: seconds to follow at most, outages included. The job itself continues.

        Raises:
            WaitTimedOut: the job has not ended by then.
        """
        self.numbers = RunMetrics()
        with self.connected() as clients:
            follower = Follower(clients, self.name, timeout)
            for event in follower.events():
                self._note_poll(follower)
                self._note(event)
                yield event

    def watch(self, interval: float = 3.0, timeout: float | None = None) -> Outcome:
        """Show the job until it ends: its status, steps, metrics, speed, time left and cost.

        In a notebook this is one card that is updated; elsewhere a line for each change. An interrupt ends the view,
        and the job continues.

        Args:
            interval: seconds between two updates.
            timeout: seconds to watch at most.

        Raises:
            WaitTimedOut: the job has not ended by then.
        """
        self.numbers = RunMetrics()
        view = LiveView(self, self.summary)
        with self.connected() as clients:
            follower = Follower(clients, self.name, timeout)
            while True:
                for event in follower.poll():
                    self._note_poll(follower)
                    self._note(event)
                    if isinstance(event, Ended):
                        view.update()
                        return event.outcome
                view.update()
                if follower.pause > 0:  # else more of the log can be read at once
                    time.sleep(max(interval, follower.pause))

    def summary(self) -> str:
        """The last known state in one line of text. This makes no call."""
        known = progress_text(self.numbers) if self.outcome is None else totals_text(self.numbers)
        state = self.outcome.summary if self.outcome is not None else self.last_seen
        return f"{self.name}: {state}{f', {known}' if known else ''}"

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait for the job's end, successful or not: see ``exit_code`` and ``reason``.

        A job that fails is resumed as `retries` of its job file says, which costs what a launch costs. ``name`` is then
        that of the new job.

        Args:
            timeout: seconds to wait at most, retries included. The job itself continues. After this time, a job that
                has failed is not resumed.

        Raises:
            WaitTimedOut: the job has not ended by then.
            Refused: the job has failed, and it is not resumed, because another job uses its checkpoints. ``outcome``
                has its end.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                *_, last = self.follow(None if until is None else max(0.0, until - time.monotonic()))
            except WaitTimedOut:  # after a retry, it names the rest of the time
                raise WaitTimedOut(f"{self.name} has not ended within {timeout:g} s; it continues") from None
            if not isinstance(last, Ended):
                raise TypeError(f"the last event of a job is its end, not {last}")
            is_over = until is not None and time.monotonic() >= until
            if is_over or not self._retry(last.outcome):
                return last.outcome

    def _retry(self, ended: Outcome) -> bool:
        """Resume the job if its policy says so. Return whether ``name`` is that of a new job."""
        with self.connected() as clients:
            retry = due_retry(clients, self.name, ended) if self.seen_running else None
            if retry is None:
                return False
            try:
                prepared = prepare(clients, self.name, retry.number)
            except AlreadyResumed:  # by another follower
                return False
            resume(clients, prepared, self.where)
        self.earlier.append(self.name)
        self.name, self.last_seen, self.outcome = prepared.job, "Submitted", None
        return True

    def logs(
        self,
        *,
        since: datetime | None = None,
        host: str | None = None,
        rank: int | None = None,
        grep: str | None = None,
        tail: int | None = None,
    ) -> list[LogLine]:
        """The log lines of the hosts until now, by time, event lines included.

        Args:
            since: with a time zone; earlier lines are left out.
            host: such as ``algo-2``.
            rank: only the lines of this worker.
            grep: a regular expression that the text contains.
            tail: at most this many lines, the last ones.
        """
        wanted = LogFilter(since, host, rank, re.compile(grep) if grep is not None else None, tail)
        with self.connected() as clients:
            return list(read_lines(clients, self.name, wanted))

    def metrics(self) -> RunMetrics:
        """The numbers that the job has reported until now: steps, times of each worker, use of each host."""
        with self.connected() as clients:
            self.numbers = read_metrics(clients, self.name)
        return self.numbers

    def diagnose(self) -> Verdict:
        """Why the job is slow, from the values that it has reported until now. The job may run or have ended."""
        return diagnose(self.metrics())

    def stop(self) -> str:
        """Request the service to stop the job. Return its new status, such as ``Stopping``.

        The script has 120 s to save its state. A job that has ended does not change.
        """
        with self.connected() as clients:
            return stop(clients, self.name)

    def resume(self) -> Job:
        """Launch a new job from the request and the checkpoints of this job. It costs as much as a launch.

        Raises:
            Refused: this job runs, has completed, has no checkpoints, or was resumed before.
        """
        with self.connected() as clients:
            prepared = prepare(clients, self.name)
            resume(clients, prepared, self.where)
        resumed = self.named(prepared.job)
        resumed.seen_running = True
        return resumed

    def named(self, name: str) -> Job:
        """Another job of the same region or local cloud."""
        return Job(name, self.where, self.output, self.connect, on_waiting=self.on_waiting)

    @contextmanager
    def connected(self) -> Iterator[Clients]:
        """The clients of the service that runs the job."""
        with self.connect() as clients:
            clients.on_waiting = self.on_waiting
            yield clients

    reached = connected  # the former name

    def download(
        self,
        folder: str | Path = RESULTS_FOLDER,
        *,
        extract: bool = False,
        force: bool = False,
        limits: bool = True,
        progress: Progress = lambda *_: None,
    ) -> Download:
        """Download the job's model and output into ``folder``/NAME.

        A file appears only when it is complete. An interrupted download continues at the same byte.

        Args:
            folder: the default, ``smdp-results``, is never part of a job's source.
            extract: unpack model.tar.gz to ``model`` and output.tar.gz to ``output`` beside them.
            force: replace existing files.
            limits: with ``extract``: refuse an archive of more than 100 GB, 500,000 files and folders, or 100 times its
                own size (where that is more than 2 GB).
            progress: called repeatedly with a ``Result`` and how many of its bytes have been written.

        Raises:
            Refused: the job has not ended, a file exists already, or an archive has unsafe content.
            NoResults: the job wrote no results.
            EnvironmentProblem: a file cannot be written.
        """
        target = Path(folder) / self.name
        with self.connected() as clients:
            return download(clients, self.name, target, extract=extract, force=force, limits=limits, progress=progress)

    def _note(self, event: FollowEvent) -> None:
        if isinstance(event, JobEvent):
            add_event(self.numbers, event)
        elif isinstance(event, StatusChanged):
            self.last_seen = event.status
        elif isinstance(event, Ended):
            self.last_seen = event.outcome.status
            if event.has_all_lines:  # the start of a log shows another rate than all of it
                record_input(self.name, self.numbers)
            self._note_end(event.outcome)

    def _note_poll(self, follower: Follower) -> None:
        self.last_description = follower.description
        self.seen_running = self.seen_running or (follower.description is not None and not follower.had_ended)

    def _note_end(self, ended: Outcome) -> None:
        self.outcome, self.numbers.ended = ended, True
        record_end(self.name, ended, datetime.now(timezone.utc))
