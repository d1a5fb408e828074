"""Waits for capacity: creates the job again, in one region after the other, until SageMaker has hosts for it.

SageMaker accepts a job that it has no hosts for, keeps it pending, and fails it after a time (CapacityError); or it
refuses the job while the account's quota is in use. At any time there is at most one job: the next one is created only
when the service has reported the end of the one before. An outage or expired credentials do not end the wait: a pending
job may start later, and costs money then. So may a job whose creation was not answered.
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
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import LONGEST_OUTAGE, waiting_for_recovery
from smdp_launch.jobs.status.description import PENDING, describe_training_job
from smdp_launch.jobs.status.interrupted_resume import is_unknown
from smdp_launch.jobs.submit import create, send_source, stop
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan

#: Seconds of the longest wait.
LONGEST = 28 * 86400
#: Seconds between the two looks for a job that the service does not know: its creation may still be under way.
_CREATION = 5.0
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
        is_stopping: the user interrupted the wait, and the job is about to be stopped.
    """

    region: str
    job: str | None
    reason: str
    again_in: float | None = None
    is_stopping: bool = False


@dataclass
class _Try:
    """One job, from its creation until it has hosts or has ended.

    Args:
        exists: the service has accepted or described it. Before that, it may exist.
        is_stopping: the service has accepted to stop it.
    """

    region: Region
    plan: Plan
    exists: bool = False
    is_stopping: bool = False

    def call(self, call: Callable[[Clients, str], _Answer]) -> _Answer:
        """The answer to a call about the job. An error names the job."""
        try:
            return call(self.region.clients, self.plan.job)
        except (ServiceProblem, EnvironmentProblem, Interrupted) as error:
            raise type(error)(f"{error}; {self.left}") from error.__cause__

    def describe(self) -> Mapping[str, Any] | None:
        """The service's description; None if it does not know a job that may exist."""
        try:
            described = self.call(describe_training_job)
        except ServiceProblem as error:
            if self.exists or not is_unknown(error.__cause__):
                raise
            return None
        self.exists = True
        return described

    @property
    def left(self) -> str:
        """What is left if the wait ends now."""
        where, name = self.plan.spec.region, self.plan.job
        state = f"is pending in {where} and may start" if self.exists else f"may exist in {where} and start"
        return f"job {name} {state}: smdp-launch stop {name}"


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
                answered for a day. If a job is left or may exist, the message names it.
            EnvironmentProblem: the credentials have been expired for a day, as ServiceProblem; or the local cloud
                cannot be restarted.
            Interrupted: `clients.interrupted` was set; the job was stopped. If the service does not answer within the
                time of the usual retry policy, or after a second interrupt, the message names the job.
            KeyboardInterrupt: the job was stopped, or the message names it.
        """
        for region, rounds in self._turns():
            one = _Try(region, region.plan())
            self._send_source(one)
            reason = self._run(one)
            if reason is None:
                return region.clients, one.plan
            if self.clock() >= self._deadline:
                raise self._timed_out(reason)
            self.report(Waits(one.plan.spec.region, None, reason))
            if region is self.regions[-1]:
                self._pause(one.plan.spec.region, rounds, reason)
        raise AssertionError("the turns do not end")

    def _turns(self) -> Iterator[tuple[Region, int]]:
        rounds = 0
        while True:
            rounds += 1
            yield from ((one, rounds) for one in self.regions)

    def _send_source(self, one: _Try) -> None:
        """The first half of the creation. An error or interrupt leaves no job."""

        def check(*_: int) -> None:
            if self._interrupted.is_set():
                raise Interrupted("interrupted during the upload of the source archive")

        record_plan(one.plan, datetime.now(timezone.utc))
        try:
            with waiting_for_recovery(one.region.clients, self._left_of(one)):
                send_source(one.region.clients, one.plan, check)
            check()
        except Interrupted as error:
            raise Interrupted(f"{error}; no job is left") from error.__cause__

    def _run(self, one: _Try) -> str | None:
        """Create the job, and wait until it has hosts: None. The reason, if it gets none. While the service does not
        answer, the time may pass: the job is stopped when the service answers again."""
        try:
            began = self.clock()
            refusal = self._create(one)
            longest = LONGEST_OUTAGE if refusal is None else LONGEST_OUTAGE - (self.clock() - began)
            with waiting_for_recovery(one.region.clients, max(longest, one.region.clients.retry_policy.total)):
                return self._poll(one, refusal)
        except Interrupted:
            self._stop_after_interrupt(one)
            return None
        except KeyboardInterrupt:
            self._withdraw_at_once(one)
            raise

    def _create(self, one: _Try) -> str | None:
        """Create the job. The error, if it may exist or not: the answer was lost, or the account's quota is in use,
        perhaps by the job that an earlier try has created."""
        try:
            with waiting_for_recovery(one.region.clients, self._left_of(one)):
                create(one.region.clients, one.plan.request)
        except (ServiceProblem, EnvironmentProblem) as error:
            if error_kind(error.__cause__) is not ErrorKind.FINAL:
                return f"job {one.plan.job} was not created: {error.__cause__}"
            if not _is_quota_in_use(error):
                raise
            return str(error)
        one.exists = True
        return None

    def _left_of(self, one: _Try) -> float:
        return max(self._deadline - self.clock(), one.region.clients.retry_policy.total)

    def _poll(self, one: _Try, refusal: str | None) -> str | None:
        """Wait until the job has hosts: None. The reason, if it gets none: ``refusal``, if it does not exist."""
        began, shown, plan = self.clock(), "", one.plan
        while True:
            described = self._find(one)
            if described is None:
                return refusal
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
                return self._withdraw(one, reason)
            if self._interrupted.wait(min(self.pauses.poll, max(0.0, self._deadline - self.clock()) + 0.01)):
                raise Interrupted("interrupted while the job is pending")

    def _find(self, one: _Try) -> Mapping[str, Any] | None:
        """The service's description. None if the job does not exist, also after the time that a creation takes."""
        described = one.describe()
        if described is None:
            time.sleep(min(_CREATION, self.pauses.poll))
            described = one.describe()
        return described

    def _gives_up(self, began: float) -> str | None:
        if self.clock() >= self._deadline:
            return "the time is over"
        if len(self.regions) > 1 and self.clock() >= began + self.pauses.longest_pending:
            return f"pending for {self.pauses.longest_pending:.0f} s"
        return None

    def _stop_after_interrupt(self, one: _Try) -> None:
        """Stop the job within the time of the usual retry policy.

        Raises:
            Interrupted: unless the job has got hosts. The interrupt is then for the caller.
        """
        self._interrupted.clear()
        plan = one.plan
        self.report(Waits(plan.spec.region, plan.job, "interrupted", is_stopping=True))
        try:
            reason = self._withdraw(one, "interrupted")
        except (ServiceProblem, EnvironmentProblem) as error:
            raise Interrupted(str(error)) from error
        if reason is not None:
            waited = f"waited for capacity in {plan.spec.region} and was stopped" if one.exists else "was not created"
            raise Interrupted(f"job {plan.job} {waited}")
        self._interrupted.set()

    def _withdraw_at_once(self, one: _Try) -> None:
        """Stop the job within the time of the usual retry policy.

        Raises:
            KeyboardInterrupt: the job is left or may exist; the message names it.
        """
        try:
            reason = self._withdraw(one, "interrupted")
        except (SmdpError, KeyboardInterrupt) as error:
            raise KeyboardInterrupt(str(error) or one.left) from error
        if reason is None:
            raise KeyboardInterrupt(f"job {one.plan.job} has got hosts: smdp-launch stop {one.plan.job}")

    def _withdraw(self, one: _Try, reason: str) -> str | None:
        """Stop a job that is pending or may exist, and wait for its end. None if it got hosts before that."""
        described = self._find(one)
        if described is not None and not one.is_stopping:
            if _has_hosts(described):
                return None
            one.call(stop)
            one.is_stopping = True
        until = self.clock() + self.pauses.stopping
        while described is not None and str(described["TrainingJobStatus"]) not in ENDED:
            if self.clock() > until:
                raise ServiceProblem(f"the service does not stop the job, so no other was created; {one.left}")
            if self._interrupted.wait(min(1.0, self.pauses.poll)):
                raise Interrupted(f"the service has not stopped the job yet; {one.left}")
            described = one.describe()
        if described is not None:
            record_end(one.plan.job, outcome(described), datetime.now(timezone.utc))
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


def _is_quota_in_use(error: SmdpError) -> bool:
    """Whether the job fits the quota of the account once other jobs have ended."""
    cause = error.__cause__
    response = getattr(cause, "response", {})
    if response.get("Error", {}).get("Code") != "ResourceLimitExceeded":
        return False
    numbers = _QUOTA.search(str(response["Error"].get("Message", "")))
    return numbers is not None and int(numbers[2]) <= int(numbers[1])
