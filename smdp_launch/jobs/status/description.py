"""A job as the service describes it now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

from smdp_launch.host_counts import host_count, hosts_by_type
from smdp_launch.jobs.records.outcome import ENDED, Outcome, outcome, with_files_found
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.interrupted_resume import explain_unknown
from smdp_launch.plain_text import without_controls
from smdp_launch.units import count, listed

#: The secondary statuses in which a job waits for hosts.
PENDING = frozenset({"Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack"})


@dataclass(frozen=True)
class Step:
    """One secondary status of the job. ``seconds`` is how long it lasted, or has lasted until now."""

    status: str
    message: str
    began: datetime
    seconds: float


@dataclass(frozen=True)
class Description:
    """Args:
    status: the service's TrainingJobStatus.
    secondary: the service's SecondaryStatus, such as Downloading.
    workers_per_host: from the request, which has it for a local run; otherwise None.
    instance_type: None until the service has selected one of several, and if the job has several groups.
    outcome: the outcome of the job; None while it runs.
    checkpoints: S3 location of its checkpoints, if it has one.
    training_started: the time from which the service bills the hosts; None before that time.
    warm_pool: the state of the hosts that are kept after the job; None without a warm pool.
    remote_debug: whether a shell can be opened in the containers.
    types: number of hosts by instance type, if the job has several groups.
    """

    job: str
    status: str
    secondary: str
    hosts: int
    workers_per_host: int | None
    instance_type: str | None
    created: datetime
    steps: tuple[Step, ...]
    outcome: Outcome | None
    checkpoints: str | None
    max_run: int | None
    training_started: datetime | None = None
    warm_pool: str | None = None
    remote_debug: bool = False
    types: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def hosts_text(self) -> str:
        """Such as ``2 hosts of ml.p4d.24xlarge``."""
        return hosts_text(self.hosts, self.instance_type, self.types)


def hosts_text(hosts: int, instance_type: str | None, types: Mapping[str, int]) -> str:
    """Such as ``2 hosts of ml.p4d.24xlarge``.

    Args:
        types: number of hosts by instance type, if the job has several groups.
    """
    known = [f"{count(number, 'host')} of {name}" for name, number in types.items()]
    known = known or [f"{count(hosts, 'host')} of {instance_type}"] if types or instance_type is not None else []
    return listed(known) if known else count(hosts, "host")


def describe(clients: Clients, job: str) -> Description:
    """The job as the service describes it now.

    Raises:
        ServiceProblem: the service refused, does not know the job, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    return description(describe_training_job(clients, job), datetime.now(timezone.utc))


def describe_training_job(clients: Clients, job: str) -> Mapping[str, Any]:
    """DescribeTrainingJob's answer; raises as `describe` does."""

    def call() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = clients.sagemaker.describe_training_job(TrainingJobName=job)
        return with_files_found(clients.quick, answer)

    with explain_unknown(job):
        return call_with_retries(clients, f"job {job} cannot be described", call)


def description(answer: Mapping[str, Any], now: datetime) -> Description:
    status, resources = str(answer["TrainingJobStatus"]), answer.get("ResourceConfig", {})
    ended = outcome(answer) if status in ENDED else None
    return Description(
        job=str(answer["TrainingJobName"]),
        status=status,
        secondary=str(answer.get("SecondaryStatus", status)),
        hosts=host_count(resources),
        workers_per_host=_count(answer.get("Environment", {}).get("SMDP_WORKERS_PER_HOST", "")),
        instance_type=resources.get("InstanceType") or resources.get("SelectedInstanceType"),
        created=answer["CreationTime"],
        steps=tuple(_steps(answer.get("SecondaryStatusTransitions", []), now if ended is None else None)),
        outcome=ended,
        checkpoints=answer.get("CheckpointConfig", {}).get("S3Uri"),
        max_run=answer.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
        training_started=answer.get("TrainingStartTime"),
        warm_pool=_warm_pool(answer.get("WarmPoolStatus")),
        remote_debug=bool(answer.get("RemoteDebugConfig", {}).get("EnableRemoteDebug")),
        types=hosts_by_type(resources) if resources.get("InstanceGroups") else {},
    )


def _warm_pool(status: Mapping[str, Any] | None) -> str | None:
    """Such as ``Available`` or ``Reused by other-job``."""
    if not status:
        return None
    reused = status.get("ReusedByJob")
    return f"{status['Status']}{f' by {reused}' if reused else ''}"


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else None


def _steps(transitions: Sequence[Mapping[str, Any]], now: datetime | None) -> Iterator[Step]:
    """Each step lasts until the next begins; the last step of a running job lasts until ``now``."""
    following = [one["StartTime"] for one in transitions[1:]]
    for one, end in zip(transitions, [*following, now], strict=False):
        began = one["StartTime"]
        seconds = ((end or one.get("EndTime", began)) - began).total_seconds()
        message = without_controls(str(one.get("StatusMessage", "")))
        yield Step(str(one["Status"]), message, began, max(0.0, seconds))


def billed_seconds(described: Description) -> float:
    """Seconds until now for which the service bills each host: from the start of training to the end, without the time
    after an interruption of spot capacity in which the job has no hosts."""
    began, end, has_hosts = described.training_started, end_of(described), True
    if began is None:
        return 0.0
    billed = (end - began).total_seconds()
    ends = [*(one.began for one in described.steps[1:]), end]
    for step, until in zip(described.steps, ends, strict=False):
        has_hosts = step.status != "Interrupted" and (has_hosts or step.status not in PENDING)
        if not has_hosts:
            billed -= max(0.0, (until - max(step.began, began)).total_seconds())
    return max(0.0, billed)


def end_of(described: Description) -> datetime:
    """When the job ended; now if it runs."""
    if described.outcome is None or not described.steps:
        return datetime.now(timezone.utc)
    last = described.steps[-1]
    return last.began + timedelta(seconds=last.seconds)
