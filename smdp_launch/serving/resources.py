"""The resources of a deployment: each is created, recognised and deleted by calls of its own.

A call is retried as every call of the launcher. If an answer is lost, the retry finds a resource with the name: it is
ours if it has the run of this deployment in a tag. Another deployment, even one of the same settings, has another run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from smdp_launch.errors import Interrupted, Refused, ServiceProblem
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.names import S3Location
from smdp_launch.request.serving import RUN_TAG

#: Codes and texts with which the services answer for a resource that does not exist.
_MISSING_CODES = frozenset({"ResourceNotFound", "ResourceNotFoundException", "NoSuchKey", "NoSuchBucket", "404"})
_MISSING_TEXTS = ("could not find", "cannot find", "does not exist", "not found")
_SCHEDULER = "scheduler"
_LONGEST_START = 3600.0  # seconds
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Resource:
    """One resource of a deployment.

    Args:
        title: for messages, such as ``endpoint NAME``.
        create: raises as `call_with_retries` does, and Refused if the name belongs to something else.
        delete: deletes what this deployment has created; returns whether there was something to delete.
    """

    title: str
    create: Callable[[], None]
    delete: Callable[[], bool]


@dataclass(frozen=True)
class Kind:
    """The calls of one kind of resource of SageMaker.

    Args:
        title: for messages, as a noun.
        field: of the request, with the name.
        call: the name of the operation without its verb, in botocore's form.
        arn: the field of the description with the ARN.
        status: the field of the description with the status; empty for a resource without one.
    """

    title: str
    field: str
    call: str
    arn: str
    status: str = ""


MODEL = Kind("model", "ModelName", "model", "ModelArn")
CONFIG = Kind("endpoint configuration", "EndpointConfigName", "endpoint_config", "EndpointConfigArn")
ENDPOINT = Kind("endpoint", "EndpointName", "endpoint", "EndpointArn", "EndpointStatus")
TRANSFORM = Kind("transform job", "TransformJobName", "transform_job", "TransformJobArn", "TransformJobStatus")


def serving_kind(kind: str) -> Kind:
    """What answers requests, or all of its input, for a ``serve.kind`` of the job file."""
    return TRANSFORM if kind == "batch" else ENDPOINT


def is_missing(error: Exception) -> bool:
    """Whether a service says with this error that the resource does not exist."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return False
    answer = error.response.get("Error", {})
    code, text = str(answer.get("Code")), str(answer.get("Message", "")).lower()
    return code in _MISSING_CODES or (code == "ValidationException" and any(one in text for one in _MISSING_TEXTS))


def describe(clients: Clients, kind: Kind, name: str) -> Mapping[str, Any] | None:
    """The service's description of the resource; None if there is none.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """

    return unless_missing(clients, _not_described(kind, name), lambda: _description(clients, kind, name))


def describe_with_tags(clients: Clients, kind: Kind, name: str) -> tuple[Mapping[str, Any], dict[str, str]] | None:
    """The service's description of the resource and its tags; None if there is none, also if it is gone meanwhile.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """

    def call() -> tuple[Mapping[str, Any], dict[str, str]]:
        description = _description(clients, kind, name)
        return description, tags_of(clients, str(description[kind.arn]))

    return unless_missing(clients, _not_described(kind, name), call)


def _not_described(kind: Kind, name: str) -> str:
    return f"{kind.title} {name} cannot be described"


def _description(clients: Clients, kind: Kind, name: str) -> Mapping[str, Any]:
    """Raises:
    ClientError: the service refused.
    """
    answer: Mapping[str, Any] = getattr(clients.sagemaker, f"describe_{kind.call}")(**{kind.field: name})
    return answer


def unless_missing(clients: Clients, what: str, call: Callable[[], _Answer]) -> _Answer | None:
    """The result of ``call``, as `call_with_retries`; None if the resource does not exist."""

    def existing() -> _Answer | None:
        try:
            return call()
        except Exception as error:
            if is_missing(error):
                return None
            raise

    return call_with_retries(clients, what, existing)


def resource(clients: Clients, kind: Kind, request: Request) -> Resource:
    """A resource of SageMaker that ``request`` creates."""
    name = str(request[kind.field])
    title = f"{kind.title} {name}"

    def create() -> None:
        from botocore.exceptions import ClientError

        try:
            getattr(clients.sagemaker, f"create_{kind.call}")(**request)
        except ClientError as error:
            if not _says_exists(error):
                raise
            tags = tags_of(clients, str(_description(clients, kind, name)[kind.arn]))
            if tags.get(RUN_TAG) != _tag(request, RUN_TAG):
                raise Refused(_other(title, name, tags, _tag(request, PLAN_TAG))) from error

    def delete_own() -> bool:
        found = describe_with_tags(clients, kind, name)
        is_ours = found is not None and found[1].get(RUN_TAG) == _tag(request, RUN_TAG)
        return is_ours and delete(clients, kind, name)

    return Resource(title, lambda: call_with_retries(clients, f"{title} could not be created", create), delete_own)


def _other(title: str, name: str, tags: Mapping[str, str], plan: str) -> str:
    """Why a resource with the name and ``tags`` is not adopted."""
    if PLAN_TAG not in tags:
        fix = "delete it with the tool that created it, or train the model in a new job, which has a new name"
        return f"there is another {title} that smdp-launch has not created: {fix}"
    if tags[PLAN_TAG] == plan:
        fix = f"wait for it; if it was killed, `smdp-launch undeploy {name}` deletes what it created"
        return f"another deployment with the same settings has created {title}: {fix}"
    fix = f"`smdp-launch undeploy {name}` deletes it"
    return f"there is another {title}, of a deployment of the same job with other settings: {fix}"


def delete(clients: Clients, kind: Kind, name: str) -> bool:
    """Delete the resource; a transform job is stopped. Return False if there was nothing to delete.

    SageMaker deletes an endpoint only when it has started or failed, so this waits for that.

    Raises:
        ServiceProblem: the service refused, or did not answer, or the endpoint still starts after an hour.
        EnvironmentProblem: the credentials have expired.
        Interrupted: during a wait; the resource still exists.
    """
    began, is_first = time.time(), True
    while True:
        try:
            return _delete(clients, kind, name)
        except ServiceProblem as error:
            if kind is not ENDPOINT or not _is_in_progress(error.__cause__) or time.time() - began > _LONGEST_START:
                raise
            if is_first:
                what = f"endpoint {name} cannot be deleted before it has started"
                clients.on_waiting(Waiting(what, "SageMaker refuses it", began, clients.poll, ErrorKind.TEMPORARY))
            is_first = False
        if clients.interrupted.wait(clients.poll):
            raise Interrupted(f"endpoint {name} still starts, and SageMaker deletes it only after that")


def _delete(clients: Clients, kind: Kind, name: str) -> bool:
    verb = "stop" if kind is TRANSFORM else "delete"

    def call() -> bool:
        try:
            getattr(clients.sagemaker, f"{verb}_{kind.call}")(**{kind.field: name})
        except Exception as error:
            if is_missing(error) or (kind is TRANSFORM and _has_ended(clients, name)):
                return False
            raise
        return True

    return call_with_retries(clients, f"{kind.title} {name} could not be deleted", call)


def _is_in_progress(error: Any) -> bool:
    """Whether the service says that the endpoint starts or changes, during which it cannot be deleted."""
    from botocore.exceptions import ClientError

    return isinstance(error, ClientError) and "in-progress" in str(error.response["Error"].get("Message"))


def _has_ended(clients: Clients, name: str) -> bool:
    """Raises:
    ClientError: the service refused.
    """
    status = clients.sagemaker.describe_transform_job(TransformJobName=name)["TransformJobStatus"]
    return status in ("Completed", "Failed", "Stopped", "Stopping")


def tags_of(clients: Clients, arn: str) -> dict[str, str]:
    """Raises:
    ClientError: the service refused.
    """
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    return {str(one["Key"]): str(one["Value"]) for page in pages for one in page["Tags"]}


def _tag(request: Request, key: str) -> str:
    return next(str(one["Value"]) for one in request["Tags"] if one["Key"] == key)


def _says_exists(error: Any) -> bool:
    answer = error.response.get("Error", {})
    text = str(answer.get("Message", "")).lower()
    return answer.get("Code") in ("ResourceInUse", "ConflictException") or "already exist" in text


def schedule(clients: Clients, request: Request) -> Resource:
    """The schedule of EventBridge Scheduler that deletes the endpoint."""
    name = str(request["Name"])
    title = f"schedule {name}"

    def create() -> None:
        from botocore.exceptions import ClientError

        try:
            clients.service(_SCHEDULER).create_schedule(**request)
        except ClientError as error:
            if not _says_exists(error):
                raise
            clients.service(_SCHEDULER).update_schedule(**request)

    return Resource(
        title,
        lambda: call_with_retries(clients, f"{title} could not be created", create),
        lambda: delete_schedule(clients, name),
    )


def delete_schedule(clients: Clients, name: str) -> bool:
    def call() -> bool:
        try:
            clients.service(_SCHEDULER).delete_schedule(Name=name)
        except Exception as error:
            if is_missing(error):
                return False
            raise
        return True

    return call_with_retries(clients, f"schedule {name} could not be deleted", call)


def delete_object(clients: Clients, where: S3Location) -> bool:
    """Delete one object. Return False if there was none."""

    def call() -> bool:
        try:
            clients.s3.head_object(Bucket=where.bucket, Key=where.key)
        except Exception as error:
            if is_missing(error):
                return False
            raise
        clients.s3.delete_object(Bucket=where.bucket, Key=where.key)
        return True

    return call_with_retries(clients, f"{where} could not be deleted", call)
