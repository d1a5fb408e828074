"""A launched sweep: its trials, the best one, its end and stop, by its name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from smdp_launch.errors import EnvironmentProblem, ServiceProblem, WaitTimedOut
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.open_costs import record_sweep_end
from smdp_launch.jobs.service.clients import Clients, Connect, ignore_waiting
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import LONGEST_OUTAGE
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.sweeps import SweepState, Trial, describe_sweep, following, stop_sweep


@dataclass
class Sweep:
    """One sweep, on AWS or in the local cloud. Each of its trials is a job.

    Every method that calls the service raises ServiceProblem if the service refuses or does not answer for a minute,
    and EnvironmentProblem if there are no credentials or they have expired.

    Args:
        name: as in its plan, and in the SageMaker console.
        where: the AWS region, or ``local``.
        on_waiting: called with each ``Waiting``: the service is busy or unreachable, and the call is retried.
    """

    name: str
    where: str
    connect: Connect = field(repr=False, compare=False)
    on_waiting: Callable[[Waiting], None] = field(default=ignore_waiting, compare=False, repr=False)

    def describe(self) -> SweepState:
        """The sweep as the service describes it now, with its trials."""
        with self.connected() as clients:
            return self._describe(clients)

    def trials(self) -> tuple[Trial, ...]:
        """The trials that have started until now: the best first, then those without a result."""
        return self.describe().trials

    def best(self) -> Trial | None:
        """The best trial until now; None without a result."""
        state = self.describe()
        return next((one for one in state.trials if one.job == state.best), None)

    def wait(self, timeout: float | None = None) -> SweepState:
        """Wait for the sweep's end, successful or not: see ``status``, ``exit_code`` and ``reason``.

        After the first answer, an outage of the service or the network, or expired credentials, do not end the wait,
        unless they last for a day.

        Args:
            timeout: seconds to wait at most, outages included. The sweep itself continues.

        Raises:
            WaitTimedOut: the sweep has not ended by then.
        """
        total = math.inf if timeout is None else timeout
        deadline = time.monotonic() + total
        late = WaitTimedOut(f"{self.name} has not ended within {total:g} s; it continues")
        with self.connected() as clients:
            usual, is_known = clients.retry_policy.total, False
            while True:
                left = deadline - time.monotonic()
                waits = is_known or left < usual
                try:
                    with following(clients, self.name, left) if waits else nullcontext():
                        state = self._describe(clients)
                except (ServiceProblem, EnvironmentProblem) as error:
                    raised = {ErrorKind.FINAL} if is_known else {ErrorKind.FINAL, ErrorKind.CREDENTIALS}
                    if not waits or left > LONGEST_OUTAGE or error_kind(error.__cause__) in raised:
                        raise
                    time.sleep(max(0.0, deadline - time.monotonic()))
                    raise late from error
                is_known = True
                if state.has_ended:
                    return state
                left = deadline - time.monotonic()
                if left <= 0:
                    raise late
                time.sleep(min(left, clients.poll))

    def stop(self) -> str:
        """Request the service to stop the sweep with its trials. Return its new status, such as ``Stopping``.

        The script of a trial has 120 s to save what it needs. A sweep that has ended does not change.
        """
        with self.connected() as clients:
            return stop_sweep(clients, self.name)

    def job(self, trial: Trial | str) -> Job:
        """The job of a trial, for its logs, its numbers and its model.

        Args:
            trial: or the name of its job.
        """
        name = trial.job if isinstance(trial, Trial) else trial
        return Job(name, self.where, None, self.connect, on_waiting=self.on_waiting)

    @contextmanager
    def connected(self) -> Iterator[Clients]:
        """The clients of the service that runs the sweep."""
        with self.connect() as clients:
            clients.on_waiting = self.on_waiting
            yield clients

    def _describe(self, clients: Clients) -> SweepState:
        state = describe_sweep(clients, self.name)
        record_sweep_end(clients, state)
        return state
