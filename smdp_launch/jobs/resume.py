"""Resumes a job: a new job with the request and the checkpoints of the old one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.faults import VARIABLE
from smdp_launch.catalog.limits import shape
from smdp_launch.errors import Refused, ServiceProblem
from smdp_launch.host_counts import SELECTED
from smdp_launch.jobs.checkpoints.listing import Checkpoints, list_checkpoints
from smdp_launch.jobs.checkpoints.refusals import SHARED, refusal
from smdp_launch.jobs.records.history import record_resumption
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.jobs.retries import RETRY_VARIABLE
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.checkpoint_users import ALLOW_SEARCH, has_own_location, users_of
from smdp_launch.jobs.status.description import Description, describe_training_job, description
from smdp_launch.jobs.status.interrupted_resume import resumed_from
from smdp_launch.jobs.status.resumptions import resumed_name
from smdp_launch.jobs.submit import create
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.environment import SESSION_TAGS_VARIABLE
from smdp_launch.request.hyperparameters import encode_value

#: The tag of a resumed job; its value is the name of the old job.
RESUMES_TAG = "smdp-launch:resumes"


@dataclass(frozen=True)
class Resumption:
    """A job about to be resumed. ``request`` is what will be submitted. ``checkpoints`` is None only for a retry of a
    job that has saved none."""

    old: Description
    ended: Outcome
    request: Request
    checkpoints: Checkpoints | None

    @property
    def job(self) -> str:
        return str(self.request["TrainingJobName"])


class AlreadyResumed(Refused):
    """The job was resumed before, perhaps by another follower."""


def prepare(clients: Clients, job: str, retry: int = 0, *, alone: bool = True) -> Resumption:
    """The request of ``job`` under a new name, with the same checkpoint location.

    Args:
        alone: refuse the job if another one uses its checkpoints.
        retry: the number of this retry by the job's policy, which also starts a job again that has saved no checkpoint;
            0 for a resumption by the user.

    Raises:
        AlreadyResumed: the job was resumed before.
        Refused: the job runs, has completed or has no checkpoints; or another job uses these.
        ServiceProblem: the service refused, does not know the job, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    answer, now = _describe(clients, job), datetime.now(timezone.utc)
    old = description(answer, now)
    ended = _require_resumable(old)
    request = _request(clients, answer, retry)
    _require_first(clients, old.job, request["TrainingJobName"])
    where = str(old.checkpoints)
    if alone and not has_own_location(old.job, where, resumes=_resumes(clients, answer)):
        _require_alone(clients, old.job, where)
    what = f"the checkpoints of {old.job} cannot be listed"
    listing = call_with_retries(clients, what, lambda: list_checkpoints(clients.s3, where))
    if listing.checkpoints is None and not retry:
        raise Refused(f"{old.job} saved no checkpoint at {where}, so it cannot be resumed: launch it again")
    return Resumption(old, ended, request, listing.checkpoints)


def resume(clients: Clients, prepared: Resumption, where: str) -> None:
    """Record the launch in the history, with the old job's file, and create the job. Retries do not create a second
    job.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    old, tag = prepared.old, _tag(prepared.request)
    record_resumption(prepared.job, old.job, where, tag, datetime.now(timezone.utc), old.hosts)
    create(clients, prepared.request)


def _describe(clients: Clients, job: str) -> Mapping[str, Any]:
    """The job; or the old job, if ``job`` is in the history but its resumption was interrupted before it was
    created."""
    try:
        return describe_training_job(clients, job)
    except ServiceProblem as error:
        old = resumed_from(job, error)
        if old is None:
            raise
        return _describe(clients, old)


def _require_resumable(old: Description) -> Outcome:
    if old.checkpoints is None:
        raise Refused(
            f"{old.job} cannot be resumed, because its job file had no `checkpoint`, and no checkpoints were uploaded: "
            "add `checkpoint: {s3: ...}` to the job file, and launch the job again"
        )
    if old.outcome is None:
        raise Refused(f"{old.job} still runs ({old.secondary}): run smdp-launch stop {old.job} before you resume it")
    if old.status == "Completed":
        raise Refused(f"{old.job} has completed: there is nothing to resume")
    return old.outcome


def _require_first(clients: Clients, old: str, new: str) -> None:
    """A job is resumed only once: two jobs with the same checkpoint location would overwrite each other's files."""
    from botocore.exceptions import ClientError

    def status() -> str | None:
        try:
            return str(clients.sagemaker.describe_training_job(TrainingJobName=new)["TrainingJobStatus"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            return None

    existing = call_with_retries(clients, f"{old} cannot be checked for an earlier resume", status)
    if existing is not None:
        verb = "resume" if existing in ENDED else "follow"
        raise AlreadyResumed(f"{old} was resumed as {new} ({existing}): run smdp-launch {verb} {new}")


def _resumes(clients: Clients, answer: Mapping[str, Any]) -> bool:
    """Whether the job has resumed another one, whose location it then has."""
    what = f"the tags of {answer['TrainingJobName']} cannot be read"
    tags = call_with_retries(clients, what, lambda: _tags(clients, answer["TrainingJobArn"]))
    return any(one["Key"] == RESUMES_TAG for one in tags)


def _require_alone(clients: Clients, job: str, where: str) -> None:
    try:
        user = next(users_of(clients, where, job), None)
    except ServiceProblem as error:
        if error_kind(error.__cause__) is not ErrorKind.FINAL:
            raise
        message = f"whether a running job uses it is unknown: {error}"
        raise refusal(SHARED, where, message, ALLOW_SEARCH, f"{job} is not resumed") from error
    if user is not None:
        message = f"{user} has not ended and uses it: the jobs would overwrite and delete each other's checkpoints"
        help_ = f"wait for its end, or run smdp-launch stop {user}"
        raise refusal(SHARED, where, message, help_, f"{job} is not resumed while {user} runs")


def _request(clients: Clients, answer: Mapping[str, Any], retry: int) -> Request:
    """The fields of the old request, out of the service's description of the job."""
    old = str(answer["TrainingJobName"])
    known = clients.sagemaker.meta.service_model.operation_model("CreateTrainingJob").input_shape.members
    request: Request = {name: value for name, value in answer.items() if name in known and name != "Tags"}
    request["TrainingJobName"] = resumed_name(answer)
    request["OutputDataConfig"] = {name: value for name, value in answer["OutputDataConfig"].items() if value != ""}
    if "ResourceConfig" in request:
        resources = request["ResourceConfig"].items()
        request["ResourceConfig"] = {name: value for name, value in resources if name not in SELECTED}
    if "Environment" in request:  # an injected fault is for the old job only
        kept = {name: value for name, value in request["Environment"].items() if name not in (VARIABLE, RETRY_VARIABLE)}
        request["Environment"] = {**kept, **({RETRY_VARIABLE: str(retry)} if retry else {})}
        if kept.get(SESSION_TAGS_VARIABLE) == "1":  # the description does not have this field
            request["SessionChainingConfig"] = {"EnableSessionTagChaining": True}
    parameters = dict(request.get("HyperParameters", {}))
    if "sagemaker_job_name" in parameters:
        parameters["sagemaker_job_name"] = encode_value(request["TrainingJobName"])
        request["HyperParameters"] = parameters
    arn = answer["TrainingJobArn"]
    tags = call_with_retries(clients, f"the tags of {old} cannot be read", lambda: user_tags(clients, arn))
    return {**request, "Tags": tags_of_resumption(tags, old, request)}


def tags_of_resumption(tags: Sequence[dict[str, str]], old: str, request: Request) -> list[dict[str, str]]:
    """The user's ``tags`` with those of the launcher. The tag with the old name is left out if there is no room."""
    ours = [{"Key": RESUMES_TAG, "Value": old}, {"Key": PLAN_TAG, "Value": request_digest(request)}]
    most = shape("TagList").maximum
    return [*tags, *(ours if most is None or len(tags) + len(ours) <= most else ours[1:])]


def user_tags(clients: Clients, arn: str) -> list[dict[str, str]]:
    """The tags of a job or a sweep that neither the launcher nor AWS has set."""
    tags = _tags(clients, arn)
    return [one for one in tags if one["Key"] not in (PLAN_TAG, RESUMES_TAG) and not one["Key"].startswith("aws:")]


def _tags(clients: Clients, arn: str) -> list[dict[str, str]]:
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return [tag for page in pages for tag in page["Tags"]]


def request_digest(request: Request) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _tag(request: Request) -> str:
    return next(str(tag["Value"]) for tag in request["Tags"] if tag["Key"] == PLAN_TAG)
