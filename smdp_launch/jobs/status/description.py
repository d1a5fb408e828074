"""A job as the service describes it now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.jobs.records.outcome import ENDED, Outcome, outcome, with_model_found
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import ask
from smdp_launch.jobs.status.never_created import never_created_told
from smdp_launch.plain_text import without_controls


@dataclass(frozen=True)
class Step:
    """A secondary status of the job's life. ``seconds`` is how long it lasted, or has lasted so far."""

    status: str
    message: str
    began: datetime
    seconds: float


@dataclass(frozen=True)
class Description:
    """Args:
    status: the service's TrainingJobStatus.
    secondary: what it does at the moment, such as Downloading.
    workers_per_host: if the request says so, as one of a run on this machine does.
    instance_type: None if the service may choose among several.
    outcome: how it ended; None while it runs.
    checkpoints: S3 location of its checkpoints, if it has one.
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


def describe(clients: Clients, job: str) -> Description:
    """Raises:
    ServiceProblem: the service refused, does not know the job, or did not answer.
    EnvironmentProblem: the credentials have expired.
    """
    return description(described(clients, job), datetime.now(timezone.utc))


def described(clients: Clients, job: str) -> Mapping[str, Any]:
    """DescribeTrainingJob's answer; raises as `describe` does."""

    def question() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = clients.sagemaker.describe_training_job(TrainingJobName=job)
        return with_model_found(clients.quick, answer)

    with never_created_told(job):
        return ask(clients, f"job {job} cannot be described", question)


def description(answer: Mapping[str, Any], now: datetime) -> Description:
    status, resources = str(answer["TrainingJobStatus"]), answer.get("ResourceConfig", {})
    ended = outcome(answer) if status in ENDED else None
    return Description(
        job=str(answer["TrainingJobName"]),
        status=status,
        secondary=str(answer.get("SecondaryStatus", status)),
        hosts=hosts_of(answer),
        workers_per_host=_count(answer.get("Environment", {}).get("SMDP_WORKERS_PER_HOST", "")),
        instance_type=resources.get("InstanceType"),
        created=answer["CreationTime"],
        steps=tuple(_steps(answer.get("SecondaryStatusTransitions", []), now if ended is None else None)),
        outcome=ended,
        checkpoints=answer.get("CheckpointConfig", {}).get("S3Uri"),
        max_run=answer.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
    )


def hosts_of(answer: Mapping[str, Any]) -> int:
    """How many hosts a job has, from DescribeTrainingJob's answer; of fallback types the most."""
    resources = answer.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups")
    if groups:
        return sum(int(one["InstanceCount"]) for one in groups)
    preferred = [one.get("InstanceCount", 1) for one in resources.get("InstancePreferences", [])]
    return int(resources.get("InstanceCount") or max(preferred, default=1))


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else None


def _steps(transitions: Sequence[Mapping[str, Any]], now: datetime | None) -> Iterator[Step]:
    """Each lasts until the next begins; the last until ``now``, if the job runs."""
    following = [one["StartTime"] for one in transitions[1:]]
    for one, end in zip(transitions, [*following, now], strict=False):
        began = one["StartTime"]
        seconds = ((end or one.get("EndTime", began)) - began).total_seconds()
        message = without_controls(str(one.get("StatusMessage", "")))
        yield Step(str(one["Status"]), message, began, max(0.0, seconds))
