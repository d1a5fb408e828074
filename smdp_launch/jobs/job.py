"""A launched job in the person's hand: everything that can be asked of it, from its name alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from smdp_launch.card import card, marked, rows
from smdp_launch.errors import WaitTimedOut
from smdp_launch.jobs.clients import Clients
from smdp_launch.jobs.download import Download, Progress, download
from smdp_launch.jobs.follow import Ended, Follower, LogLine, Seen, StatusChanged
from smdp_launch.jobs.outcome import Outcome
from smdp_launch.jobs.submit import stop, told
from smdp_launch.source.scan import RESULTS_FOLDER

#: Opens what a job is reached through, and leaves it again: a private local cloud lives no longer than it is needed.
Connect = Callable[[], AbstractContextManager[Clients]]


@dataclass
class Job:
    """One job, on AWS or on this machine.

    Every method that asks the service raises ServiceProblem if that refuses or does not answer, and
    EnvironmentProblem if there are no credentials.

    Args:
        name: as in its plan, and in the SageMaker console.
        where: the AWS region, or ``local``.
        output: the S3 location below which its results lie; None for a job that was found by its name.
        last_seen: its status when somebody last looked.
        outcome: how it ended; None until somebody has seen that.
    """

    name: str
    where: str
    output: str | None
    connect: Connect = field(repr=False, compare=False)
    last_seen: str = field(default="Submitted", compare=False)
    outcome: Outcome | None = field(default=None, compare=False, repr=False)

    def status(self) -> str:
        """The service's secondary status as of now, such as ``Downloading`` or ``Training``."""
        with self.connect() as clients, told(f"job {self.name} cannot be described"):
            described = clients.sagemaker.describe_training_job(TrainingJobName=self.name)
        self.last_seen = str(described.get("SecondaryStatus", described["TrainingJobStatus"]))
        return self.last_seen

    def follow(self, timeout: float | None = None) -> Iterator[Seen]:
        """All that has happened and will, in order: changes of status, log lines, events; at last ``Ended``.

        Args:
            timeout: seconds to follow at most. The job goes on.

        Raises:
            WaitTimedOut: the job has not ended by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.connect() as clients:
            follower = Follower(clients, self.name)
            while True:
                for seen in follower.look():
                    self._note(seen)
                    yield seen
                    if isinstance(seen, Ended):
                        return
                if deadline is not None and time.monotonic() >= deadline:
                    raise WaitTimedOut(f"{self.name} has not ended within {timeout:g} s; it goes on")
                time.sleep(clients.poll)

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

    def logs(self) -> list[LogLine]:
        """The lines that the hosts have written so far, by time."""
        with self.connect() as clients:
            return [one for one in Follower(clients, self.name).look() if isinstance(one, LogLine)]

    def stop(self) -> None:
        """Ask the service to stop the job; its script has 120 s to save what it needs. One that has ended is fine."""
        with self.connect() as clients:
            stop(clients, self.name)

    def download(
        self,
        folder: str | Path = RESULTS_FOLDER,
        *,
        extract: bool = False,
        force: bool = False,
        progress: Progress = lambda *_: None,
    ) -> Download:
        """Fetch the job's model and output into ``folder``/NAME.

        A file appears whole or not at all; a download that was interrupted goes on where it was.

        Args:
            folder: the default, ``smdp-results``, is never part of a job's source.
            extract: unpack model.tar.gz to ``model`` and output.tar.gz to ``output`` beside them.
            force: replace what is there.
            progress: called with each ``Result`` and the bytes of it that are there, again and again.

        Raises:
            Refused: the job has not ended, a file is there already, or an archive holds what should not be unpacked.
            NoResults: the job left nothing.
            EnvironmentProblem: a file cannot be written.
        """
        into = Path(folder) / self.name
        with self.connect() as clients:
            return download(clients, self.name, into, extract=extract, force=force, progress=progress)

    def _repr_html_(self) -> str:
        """What was seen last; nobody is asked."""
        known = [("where", self.where), ("output", self.output or "unknown"), ("last seen", self.last_seen)]
        if self.outcome is None:
            return card(self.name, rows(known), beside="job")
        ended = [("ended", self.outcome.summary), ("model", self.outcome.model or "none")]
        reason = [marked("error", self.outcome.reason)] if self.outcome.reason else []
        return card(self.name, rows([*known, *ended]), *reason, beside="job")

    def _note(self, seen: Seen) -> None:
        if isinstance(seen, StatusChanged):
            self.last_seen = seen.status
        elif isinstance(seen, Ended):
            self.last_seen, self.outcome = seen.outcome.status, seen.outcome
