"""A new job from an old one's request, which goes on from the old one's checkpoints."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.faults import VARIABLE
from smdp_launch.errors import Refused, ServiceProblem
from smdp_launch.jobs.checkpoints.listing import Checkpoints, list_checkpoints
from smdp_launch.jobs.records.history import remember_resumption
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import ask
from smdp_launch.jobs.status.description import Description, described, description
from smdp_launch.jobs.status.never_created import goes_on_from
from smdp_launch.jobs.submit import create
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.names import job_name

#: The tag of a resumed job, with the name of the one that it goes on from.
RESUMES_TAG = "smdp-launch:resumes"

_NAME = re.compile(r"(?P<base>.+)-\d{14}-[0-9a-f]{4}")
_LONGEST_BASE = 43  # characters, so that the whole name has no more than the service's 63


@dataclass(frozen=True)
class Resumption:
    """A job about to be resumed. ``request`` is what will be submitted."""

    old: Description
    ended: Outcome
    request: Request
    checkpoints: Checkpoints

    @property
    def job(self) -> str:
        return str(self.request["TrainingJobName"])


def prepare(clients: Clients, job: str) -> Resumption:
    """The request of ``job`` under a new name, with the same checkpoint location.

    Raises:
        Refused: the job runs, has completed, has no checkpoints, or was resumed before.
        ServiceProblem: the service refused, does not know the job, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    answer, now = _described(clients, job), datetime.now(timezone.utc)
    old = description(answer, now)
    ended = _require_resumable(old)
    request = _request(clients, answer)
    _require_first(clients, old.job, request["TrainingJobName"])
    where = str(old.checkpoints)
    found = ask(clients, f"the checkpoints of {old.job} cannot be listed", lambda: list_checkpoints(clients.s3, where))
    if found.checkpoints is None:
        raise Refused(f"{old.job} left nothing at {where}: there is nothing to go on from; launch it anew")
    return Resumption(old, ended, request, found.checkpoints)


def resume(clients: Clients, prepared: Resumption, where: str) -> None:
    """Write the launch down, as one of the old job's file, and create the job, once.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    old, tag = prepared.old, _tag(prepared.request)
    remember_resumption(prepared.job, old.job, where, tag, datetime.now(timezone.utc), old.hosts)
    create(clients, prepared.request)


def _described(clients: Clients, job: str) -> Mapping[str, Any]:
    """The job, or the one that it was to go on from: a resumption that was cut off before its job was created has been
    written down all the same."""
    try:
        return described(clients, job)
    except ServiceProblem as error:
        old = goes_on_from(job, error)
        if old is None:
            raise
        return _described(clients, old)


def _require_resumable(old: Description) -> Outcome:
    if old.checkpoints is None:
        raise Refused(
            f"{old.job} has no checkpoints to go on from: say where they go (checkpoint: {{s3: ...}}) and launch anew"
        )
    if old.outcome is None:
        raise Refused(f"{old.job} is still at it ({old.secondary}): smdp-launch stop {old.job}, and resume it then")
    if old.status == "Completed":
        raise Refused(f"{old.job} has completed: there is nothing left to go on with")
    return old.outcome


def _require_first(clients: Clients, old: str, new: str) -> None:
    """A job is resumed once: two that go on from the same checkpoints would write over each other's."""
    from botocore.exceptions import ClientError

    def status() -> str | None:
        try:
            return str(clients.sagemaker.describe_training_job(TrainingJobName=new)["TrainingJobStatus"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            return None

    found = ask(clients, f"whether {old} was resumed before cannot be told", status)
    if found is not None:
        verb = "resume" if found in ENDED else "follow"
        raise Refused(f"{old} was resumed as {new} ({found}): smdp-launch {verb} {new}")


def _request(clients: Clients, answer: Mapping[str, Any]) -> Request:
    """The members of the old request, which the service's description repeats among others."""
    old = str(answer["TrainingJobName"])
    known = clients.sagemaker.meta.service_model.operation_model("CreateTrainingJob").input_shape.members
    request: Request = {name: value for name, value in answer.items() if name in known and name != "Tags"}
    match = _NAME.fullmatch(old)
    base = (match["base"] if match else old)[:_LONGEST_BASE]
    # Of the old job alone: whoever asks twice, or again after an answer was lost, means one job.
    ended = answer.get("TrainingEndTime") or answer["CreationTime"]
    request["TrainingJobName"] = job_name(base, ended, int(hashlib.sha256(old.encode()).hexdigest()[:4], 16))
    request["OutputDataConfig"] = {name: value for name, value in answer["OutputDataConfig"].items() if value != ""}
    if "Environment" in request:  # a fault that was rehearsed met the old job
        request["Environment"] = {name: value for name, value in request["Environment"].items() if name != VARIABLE}
    parameters = dict(request.get("HyperParameters", {}))
    if "sagemaker_job_name" in parameters:
        parameters["sagemaker_job_name"] = encode_value(request["TrainingJobName"])
        request["HyperParameters"] = parameters
    tags = ask(clients, f"the tags of {old} cannot be read", lambda: _tags(clients, answer["TrainingJobArn"]))
    ours = [{"Key": RESUMES_TAG, "Value": old}, {"Key": PLAN_TAG, "Value": _hash(request)}]
    return {**request, "Tags": [*tags, *ours]}


def _tags(clients: Clients, arn: str) -> list[dict[str, str]]:
    """The person's own."""
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    found = [tag for page in pages for tag in page["Tags"]]
    return [one for one in found if one["Key"] not in (PLAN_TAG, RESUMES_TAG) and not one["Key"].startswith("aws:")]


def _hash(request: Request) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _tag(request: Request) -> str:
    return next(str(tag["Value"]) for tag in request["Tags"] if tag["Key"] == PLAN_TAG)
