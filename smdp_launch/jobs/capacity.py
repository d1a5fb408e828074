"""Waits for capacity: creates the job again, in one region after the other, until SageMaker has hosts for it.

SageMaker accepts a job that it has no hosts for, keeps it pending, and fails it after a time (CapacityError); or it
refuses the job while the account's quota is in use. At any time there is at most one job: the next one is created only
when the service has reported the end of the one before. An outage or expired credentials do not end the wait: a pending
job may start later, and costs money then.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from smdp_launch.checking.job import CheckedJob
from smdp_launch.errors import EnvironmentProblem, Interrupted, ServiceProblem, SmdpError, WaitTimedOut
from smdp_launch.jobs.preflight.run import require_account
from smdp_launch.jobs.records.history import record_end, record_plan
from smdp_launch.jobs.records.outcome import ENDED, outcome
from smdp_launch.jobs.service.clients import Clients, connect_aws
from smdp_launch.jobs.service.retry import waiting_for_recovery
from smdp_launch.jobs.status.description import PENDING, describe_training_job
from smdp_launch.jobs.status.interrupted_resume import is_unknown
from smdp_launch.jobs.submit import stop, submit
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan

#: Seconds of the longest wait.
LONGEST = 28 * 86400
#: The FailureReason of a job that got no hosts.
_NO_CAPACITY = re.compile(
    r"\bCapacityError\b|insufficient\w* capacity|unable to provision .{0,40}capacity", re.IGNORECASE
)
#: The service's message for a quota: its limit, and the instances that the job needs.
_QUOTA = re.compile(r"service limit '[^']*' is (\d+) .*request delta of (\d+)", re.DOTALL)


_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Pauses:
    """Seconds.

    Args:
        first: between the first round of all regions and the second; each further pause is twice as long.
        longest: upper limit of a pause.
        poll: between two looks at a pending job.
        longest_pending: how long a job may be pending while another region is left to try.
        stopping: how long the service may take to stop a pending job.
    """

    first: float = 60.0
    longest: float = 900.0
    poll: float = 15.0
    longest_pending: float = 1200.0
    stopping: float = 600.0

    def within(self, total: float) -> Pauses:
        """Shorter pauses for a wait of ``total`` seconds."""
        return Pauses(
            min(self.first, total / 10),
            min(self.longest, total / 4),
            min(self.poll, total / 20),
            min(self.longest_pending, total / 4),
            self.stopping,
        )

    def after(self, rounds: int) -> float:
        """The pause after ``rounds`` rounds, with jitter: jobs that were refused together do not ask together."""
        most = min(self.longest, self.first * 2.0 ** min(rounds - 1, 16))
        return most * random.uniform(0.75, 1.0)  # noqa: S311 - jitter, not secrets


@dataclass(frozen=True)
class Region:
    """A region that the job may run in.

    Args:
        plan: makes a plan with a new name: a name can be used once.
    """

    clients: Clients
    plan: Callable[[], Plan]


def regions_of(first: Clients, jobs: Sequence[CheckedJob], ignore: Collection[str]) -> list[Region]:
    """The regions of the jobs, in their order. The account is checked for all but the first.

    Args:
        first: the clients of the region of the first job. The others retry and are interrupted as they are.
        ignore: codes of checks of the account to skip.

    Raises:
        Refused: the account is not ready for one of the others.
        EnvironmentProblem: no credentials.
        ServiceProblem: AWS cannot be reached.
    """
    regions = [Region(first, lambda: make_plan(jobs[0]))]
    for job in jobs[1:]:
        plan = make_plan(job)
        clients = connect_aws(plan.spec.region)
        clients.on_waiting = first.on_waiting
        clients.interrupted = first.interrupted
        require_account(clients, plan, ignore)
        regions.append(Region(clients, lambda job=job: make_plan(job)))  # type: ignore[misc]
    return regions


@dataclass(frozen=True)
class Waits:
    """What the wait reports: a job is pending, or could not get hosts, or the next one follows after a pause.

    Args:
        job: None between two jobs.
        again_in: seconds until the next job; None while one is pending.
    """

    region: str
    job: str | None
    reason: str
    again_in: float | None = None


@dataclass
class CapacityWait:
    """Args:
    total: seconds until the wait ends without a job.
    report: called for each change.
    """

    regions: Sequence[Region]
    total: float
    report: Callable[[Waits], None]
    pauses: Pauses = Pauses()
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._deadline = self.clock() + self.total
        self._interrupted = self.regions[0].clients.interrupted

    def run(self) -> tuple[Clients, Plan]:
        """Create jobs until one has hosts, or has ended for another reason than capacity.

        Returns:
            The clients of its region, and its plan.

        Raises:
            WaitTimedOut: no job got hosts in time; none is left.
            ServiceProblem: the service refused the job for another reason, does not stop a pending job, or has not
                answered for a day. If a job is left, the message names it.
            EnvironmentProblem: the local cloud cannot be restarted.
            Interrupted: `clients.interrupted` was set; the pending job was stopped. After a second interrupt, while the
                service does not answer, the job is left, and the message names it.
            KeyboardInterrupt: the pending job was stopped, or the message names it.
        """
        for region, rounds in self._turns():
            plan = region.plan()
            try:
                reason = self._create(region, plan) or self._await(region, plan)
            except KeyboardInterrupt:
                self._withdraw_at_once(region, plan)
                raise
            if reason is None:
                return region.clients, plan
            self.report(Waits(plan.spec.region, None, reason))
            if region is self.regions[-1]:
                self._pause(plan.spec.region, rounds, reason)
        raise AssertionError("the turns do not end")

    def _turns(self) -> Iterator[tuple[Region, int]]:
        rounds = 0
        while True:
            rounds += 1
            yield from ((one, rounds) for one in self.regions)

    def _create(self, region: Region, plan: Plan) -> str | None:
        """Create the job. The reason, if the account's quota is in use."""
        record_plan(plan, datetime.now(timezone.utc))
        try:
            left = max(self._deadline - self.clock(), region.clients.retry_policy.total)
            with waiting_for_recovery(region.clients, left):
                submit(region.clients, plan)
        except ServiceProblem as error:
            if not _is_quota_in_use(error):
                raise
            return str(error)
        return None

    def _await(self, region: Region, plan: Plan) -> str | None:
        """Wait until the job has hosts: None. The reason, if it gets none. While the service does not answer, the time
        may pass: the job is stopped when the service answers again."""
        with waiting_for_recovery(region.clients):
            return self._poll(region, plan)

    def _poll(self, region: Region, plan: Plan) -> str | None:
        began, shown = self.clock(), ""
        while True:
            try:
                described = _call(region, plan, describe_training_job)
            except Interrupted:
                self._stop_after_interrupt(region, plan)
                return None
            if _has_hosts(described):
                return None
            if str(described["TrainingJobStatus"]) in ENDED:
                return _record_failure(plan, described)
            message = _message(described)
            if message != shown:
                self.report(Waits(plan.spec.region, plan.job, message))
                shown = message
            reason = self._gives_up(began)
            if reason is not None:
                return self._withdraw(region, plan, reason)
            if self._interrupted.wait(min(self.pauses.poll, max(0.0, self._deadline - self.clock()) + 0.01)):
                self._stop_after_interrupt(region, plan)
                return None

    def _gives_up(self, began: float) -> str | None:
        if self.clock() >= self._deadline:
            return "the time is over"
        has_others = len(self.regions) > 1
        if has_others and self.clock() >= began + self.pauses.longest_pending:
            return f"pending for {self.pauses.longest_pending:.0f} s"
        return None

    def _stop_after_interrupt(self, region: Region, plan: Plan) -> None:
        """Raises:
        Interrupted: unless the job has got hosts. The interrupt is then for the caller.
        """
        self._interrupted.clear()
        if self._withdraw(region, plan, "interrupted") is not None:
            raise Interrupted(f"job {plan.job} waited for capacity in {plan.spec.region} and was stopped")
        self._interrupted.set()

    def _withdraw_at_once(self, region: Region, plan: Plan) -> None:
        """Stop the pending job within the time of the usual retry policy.

        Raises:
            KeyboardInterrupt: it is not known to be stopped; the message names it.
        """
        try:
            self._withdraw(region, plan, "interrupted")
        except WaitTimedOut:
            return
        except SmdpError as error:
            if not is_unknown(error.__cause__):  # else the interrupt came before the creation
                raise KeyboardInterrupt(str(error)) from error

    def _withdraw(self, region: Region, plan: Plan, reason: str) -> str | None:
        """Stop a pending job and wait for its end. None if it got hosts before that."""
        described = _call(region, plan, describe_training_job)
        if _has_hosts(described):
            return None
        _call(region, plan, stop)
        until = self.clock() + self.pauses.stopping
        while str(described["TrainingJobStatus"]) not in ENDED:
            if self.clock() > until:
                raise ServiceProblem(f"the service does not stop the job, so no other was created; {_left(plan)}")
            time.sleep(min(1.0, self.pauses.poll))
            described = _call(region, plan, describe_training_job)
        record_end(plan.job, outcome(described), datetime.now(timezone.utc))
        if self.clock() >= self._deadline:
            raise self._timed_out(reason)
        return reason

    def _pause(self, region: str, rounds: int, reason: str) -> None:
        gap = self.pauses.after(rounds)
        if self.clock() + gap >= self._deadline:
            raise self._timed_out(reason)
        self.report(Waits(region, None, reason, gap))
        if self._interrupted.wait(gap):
            raise Interrupted("interrupted between two jobs: no job is left")

    def _timed_out(self, reason: str) -> WaitTimedOut:
        return WaitTimedOut(f"no capacity within {self.total:.0f} s, and no job is left; last: {reason}")


def _call(region: Region, plan: Plan, call: Callable[[Clients, str], _Answer]) -> _Answer:
    """The answer to a call about a job that may be pending. An error names the job."""
    try:
        return call(region.clients, plan.job)
    except (ServiceProblem, EnvironmentProblem, Interrupted) as error:
        raise type(error)(f"{error}; {_left(plan)}") from error.__cause__


def _left(plan: Plan) -> str:
    return f"job {plan.job} is pending in {plan.spec.region} and may start: smdp-launch stop {plan.job}"


def _has_hosts(described: Mapping[str, Any]) -> bool:
    """Whether the job has hosts, or had some before it ended. A job that was stopped has ended without capacity
    being the reason, so the wait ends too."""
    status = str(described["TrainingJobStatus"])
    if status in ENDED:
        return not (status == "Failed" and _NO_CAPACITY.search(str(described.get("FailureReason", ""))))
    return status == "Stopping" or str(described.get("SecondaryStatus", "Starting")) not in PENDING


def _record_failure(plan: Plan, described: Mapping[str, Any]) -> str:
    record_end(plan.job, outcome(described), datetime.now(timezone.utc))
    return str(described.get("FailureReason", "no capacity"))


def _message(described: Mapping[str, Any]) -> str:
    transitions = described.get("SecondaryStatusTransitions", [])
    text = str(transitions[-1].get("StatusMessage", "")) if transitions else ""
    return text or str(described.get("SecondaryStatus", "Pending"))


def _is_quota_in_use(error: ServiceProblem) -> bool:
    """Whether the job fits the quota of the account once other jobs have ended."""
    cause = error.__cause__
    response = getattr(cause, "response", {})
    if response.get("Error", {}).get("Code") != "ResourceLimitExceeded":
        return False
    numbers = _QUOTA.search(str(response["Error"].get("Message", "")))
    return numbers is not None and int(numbers[2]) <= int(numbers[1])
