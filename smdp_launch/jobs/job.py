"""A launched job in the person's hand: everything that can be asked of it, from its name alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.jobs.checkpoints.listing import Checkpoints, list_checkpoints
from smdp_launch.jobs.follow import Ended, Follower, Seen, StatusChanged
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.logs.read import Wanted, read_lines
from smdp_launch.jobs.records.history import LOCAL, remember_end
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.resume import prepare, resume
from smdp_launch.jobs.service.clients import Clients, Connect, tell_nobody
from smdp_launch.jobs.service.retry import ask
from smdp_launch.jobs.service.retry_policy import Patience, Waiting
from smdp_launch.jobs.status.description import Description, describe
from smdp_launch.jobs.submit import stop
from smdp_launch.jobs.transfer.download import Download, Progress, download
from smdp_launch.notebook_view import NotebookView
from smdp_launch.source.scan import RESULTS_FOLDER

#: ``where`` of a job that is looked for in the region of the AWS configuration.
UNKNOWN_REGION = "AWS"


@dataclass
class Job(NotebookView):
    """One job, on AWS or on this machine.

    Every method that asks the service raises ServiceProblem if that refuses or does not answer for a minute, and
    EnvironmentProblem if there are no credentials, or only such as have expired.

    Args:
        name: as in its plan, and in the SageMaker console.
        where: the AWS region, or ``local``.
        output: the S3 location below which its results lie; None for a job that was found by its name.
        last_seen: its status when somebody last looked.
        outcome: how it ended; None until somebody has seen that.
        tell: called with each ``Waiting``: the service is busy or out of reach and asked again.
    """

    name: str
    where: str
    output: str | None
    connect: Connect = field(repr=False, compare=False)
    last_seen: str = field(default="Submitted", compare=False)
    outcome: Outcome | None = field(default=None, compare=False, repr=False)
    tell: Callable[[Waiting], None] = field(default=tell_nobody, compare=False, repr=False)

    @property
    def region(self) -> str | None:
        """None for a job of this machine, or of the region of the AWS configuration."""
        return None if self.where in (LOCAL, UNKNOWN_REGION) else self.where

    def status(self) -> str:
        """The service's secondary status as of now, such as ``Downloading`` or ``Training``."""
        return self.describe().secondary

    def describe(self) -> Description:
        """What the service says of the job now: its status, how long each step took, and how it ended."""
        with self.reached() as clients:
            found = describe(clients, self.name)
        self.last_seen = found.secondary
        if found.outcome is not None:
            self._note_end(found.outcome)
        return found

    def checkpoints(self, found: Description | None = None) -> Checkpoints | None:
        """What lies at its checkpoint location now; None where nothing does, or the job has none.

        Args:
            found: what the service says of the job; it is asked where that is left out.
        """
        with self.reached() as clients:
            where = (found or self.describe()).checkpoints
            if where is None:
                return None
            once = replace(clients, patience=Patience(total=0.0, credentials=1))  # the S3 client tries again by itself
            doing = f"the checkpoints of {self.name} cannot be listed"
            return ask(once, doing, lambda: list_checkpoints(clients.s3, where)).checkpoints

    def follow(self, timeout: float | None = None) -> Iterator[Seen]:
        """All that has happened and will, in order: changes of status, log lines, events; at last ``Ended``.

        The lines of several hosts come in the order of their times, held back up to two seconds for that. An outage
        of the service or the network, or credentials that have expired, are waited for and told by ``Waiting`` and
        ``Reached``.

        Args:
            timeout: seconds to follow at most, outages included. The job goes on.

        Raises:
            WaitTimedOut: the job has not ended by then.
        """
        with self.reached() as clients:
            follower = Follower(clients, self.name, timeout)
            while True:
                for seen in follower.look():
                    self._note(seen)
                    yield seen
                    if isinstance(seen, Ended):
                        return
                time.sleep(follower.pause)

    def wait(self, timeout: float | None = None) -> Outcome:
        """How the job ends, be it well or not: ``exit_code`` and ``reason`` tell.

        Args:
            timeout: seconds to wait at most. The job goes on.

        Raises:
            WaitTimedOut: the job has not ended by then.
        """
        *_, last = self.follow(timeout)
        if not isinstance(last, Ended):
            raise TypeError(f"the last thing seen of a job is its end, not {last}")
        return last.outcome

    def logs(
        self,
        *,
        since: datetime | None = None,
        host: str | None = None,
        rank: int | None = None,
        grep: str | None = None,
        tail: int | None = None,
    ) -> list[LogLine]:
        """The lines that the hosts have written so far, by time; event lines are among them.

        Args:
            since: with a time zone; earlier lines are left out.
            host: such as ``algo-2``.
            rank: only what this worker wrote.
            grep: a pattern that the text holds.
            tail: the last so many of them.
        """
        wanted = Wanted(since, host, rank, re.compile(grep) if grep is not None else None, tail)
        with self.reached() as clients:
            return list(read_lines(clients, self.name, wanted))

    def stop(self) -> str:
        """Ask the service to stop the job; its status then, such as ``Stopping``.

        Its script has 120 s to save what it needs. A job that has ended is left as it is.
        """
        with self.reached() as clients:
            return stop(clients, self.name)

    def resume(self) -> Job:
        """Launch a new job from this one's request and checkpoints; it costs what a launch costs.

        Raises:
            Refused: this one runs, has completed, has no checkpoints, or was resumed before.
        """
        with self.reached() as clients:
            prepared = prepare(clients, self.name)
            resume(clients, prepared, self.where)
        return self.named(prepared.job)

    def named(self, name: str) -> Job:
        """Another job of the same place."""
        return Job(name, self.where, self.output, self.connect, tell=self.tell)

    @contextmanager
    def reached(self) -> Iterator[Clients]:
        """The clients of the service that runs the job."""
        with self.connect() as clients:
            clients.tell = self.tell
            yield clients

    def download(
        self,
        folder: str | Path = RESULTS_FOLDER,
        *,
        extract: bool = False,
        force: bool = False,
        limits: bool = True,
        progress: Progress = lambda *_: None,
    ) -> Download:
        """Fetch the job's model and output into ``folder``/NAME.

        A file appears whole or not at all; a download that was interrupted goes on where it was.

        Args:
            folder: the default, ``smdp-results``, is never part of a job's source.
            extract: unpack model.tar.gz to ``model`` and output.tar.gz to ``output`` beside them.
            force: replace what is there.
            limits: with ``extract``: refuse an archive of more than 100 GB, 500,000 files and folders, or 100 times its
                own size (where that is more than 2 GB).
            progress: called with each ``Result`` and the bytes of it that are there, again and again.

        Raises:
            Refused: the job has not ended, a file is there already, or an archive holds what should not be unpacked.
            NoResults: the job left nothing.
            EnvironmentProblem: a file cannot be written.
        """
        into = Path(folder) / self.name
        with self.reached() as clients:
            return download(clients, self.name, into, extract=extract, force=force, limits=limits, progress=progress)

    def _note(self, seen: Seen) -> None:
        if isinstance(seen, StatusChanged):
            self.last_seen = seen.status
        elif isinstance(seen, Ended):
            self.last_seen = seen.outcome.status
            self._note_end(seen.outcome)

    def _note_end(self, ended: Outcome) -> None:
        self.outcome = ended
        remember_end(self.name, ended, datetime.now(timezone.utc))
