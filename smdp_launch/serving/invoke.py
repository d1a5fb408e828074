"""Sends one request to an endpoint, and returns the answer of the model."""

from __future__ import annotations

import json
import math
import time
import uuid
from dataclasses import dataclass
from typing import Any

from smdp_launch.catalog.hosting.images import most_payload
from smdp_launch.errors import Interrupted, ModelFailed, Refused, ServiceProblem, WaitTimedOut
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.plain_text import without_controls
from smdp_launch.request.names import S3Location
from smdp_launch.serving.follow import log_tail
from smdp_launch.serving.resources import ENDPOINT, describe, is_missing

_RUNTIME = "sagemaker-runtime"
#: MIME types by the suffix of a file, where the user gives none.
_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".csv": "text/csv",
    ".npy": "application/x-npy",
}
ANY_TYPE = "application/octet-stream"
#: Lines of the container's log that end with the traceback of a failed request.
_LOG_LINES = 15
_LONGEST_ASYNC = 3600  # seconds


@dataclass(frozen=True)
class ModelAnswer:
    """The body that the model returned, and its MIME type."""

    body: bytes
    content_type: str


def content_type_of(suffix: str) -> str:
    return _TYPES.get(suffix.lower(), ANY_TYPE)


def check_size(kind: str, body: bytes) -> None:
    """Raises:
    Refused: the service does not accept a request of this size.
    """
    most = most_payload(kind)
    if most is not None and len(body) > most:
        raise Refused(
            f"the request has {len(body):,} bytes, and a {kind} endpoint accepts {most:,} bytes at most: send smaller "
            "requests, or deploy with `serve: {kind: async}` or `batch`"
        )


def invoke(
    clients: Clients, name: str, body: bytes, content_type: str, accept: str | None = None, kind: str = "realtime"
) -> ModelAnswer:
    """Send ``body`` to the endpoint and return its answer.

    Raises:
        Refused: the request is too large, or the endpoint does not serve yet.
        ModelFailed: the model answered with an error.
        ServiceProblem: there is no such endpoint, or the service did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    from botocore.exceptions import ClientError

    check_size(kind, body)
    arguments: dict[str, Any] = {"EndpointName": name, "Body": body, "ContentType": content_type}
    if accept is not None:
        arguments["Accept"] = accept

    def call() -> ModelAnswer:
        answer = clients.service(_RUNTIME).invoke_endpoint(**arguments)
        return ModelAnswer(answer["Body"].read(), str(answer.get("ContentType", ANY_TYPE)))

    try:
        return call_with_retries(clients, f"endpoint {name} gave no answer", call, is_transfer=True)
    except ServiceProblem as error:
        cause = error.__cause__
        if isinstance(cause, ClientError):
            raise _explained(clients, name, error, cause) from error
        raise


def invoke_async(
    clients: Clients,
    name: str,
    body: bytes,
    content_type: str,
    inputs: S3Location,
    timeout: float,
    accept: str | None = None,
) -> ModelAnswer:
    """Upload ``body``, request the answer of an asynchronous endpoint, and wait for it.

    Args:
        inputs: the location of the endpoint's requests.
        timeout: seconds to wait for the answer, and seconds that the model may take, up to an hour.

    Raises:
        ServiceProblem: the model failed, or the service refused or did not answer.
        WaitTimedOut: no answer within ``timeout``; the message has its location.
    """
    check_size("async", body)
    where = inputs.join(uuid.uuid4().hex)
    what = f"the request for endpoint {name} could not be uploaded"
    call_with_retries(
        clients,
        what,
        lambda: clients.s3.put_object(Bucket=where.bucket, Key=where.key, Body=body),
        is_transfer=True,
    )

    arguments: dict[str, Any] = {"EndpointName": name, "InputLocation": str(where), "ContentType": content_type}
    arguments["InvocationTimeoutSeconds"] = max(1, math.ceil(min(_LONGEST_ASYNC, timeout)))
    if accept is not None:
        arguments["Accept"] = accept

    def call() -> dict[str, Any]:
        answer: dict[str, Any] = clients.service(_RUNTIME).invoke_endpoint_async(**arguments)
        return answer

    answer = call_with_retries(clients, f"endpoint {name} accepted no request", call)
    output = S3Location.parse(str(answer["OutputLocation"]))
    failure = answer.get("FailureLocation")
    deadline = time.monotonic() + timeout
    while True:
        found = _object(clients, output)
        if found is not None:
            return found
        failed = _object(clients, S3Location.parse(str(failure))) if failure is not None else None
        if failed is not None:
            reason = without_controls(failed.body.decode("utf-8", "replace"))
            raise ServiceProblem(f"the model of endpoint {name} failed: {reason}")
        if time.monotonic() > deadline:
            raise WaitTimedOut(f"no answer within {timeout:g} s; it will be at {output}")
        if clients.interrupted.wait(clients.poll):
            raise Interrupted(f"interrupted; the answer will be at {output}")


def _object(clients: Clients, where: S3Location) -> ModelAnswer | None:
    def call() -> ModelAnswer | None:
        try:
            answer = clients.s3.get_object(Bucket=where.bucket, Key=where.key)
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return ModelAnswer(answer["Body"].read(), str(answer.get("ContentType", ANY_TYPE)))

    return call_with_retries(clients, f"{where} cannot be read", call)


def _explained(clients: Clients, name: str, error: ServiceProblem, cause: Any) -> ServiceProblem | Refused:
    """The reason as the user can act on it."""
    answer = cause.response
    if answer["Error"].get("Code") == "ModelError":
        status, text = answer.get("OriginalStatusCode"), without_controls(str(answer.get("OriginalMessage", "")))
        message = f"the model of endpoint {name} failed with status {status}: {_message(text)}"
        if isinstance(status, int) and 400 <= status < 500:  # the request was wrong, and the message says how
            return ModelFailed(message)
        stream = str(answer.get("LogStreamArn", "")).partition(":log-stream:")[2]
        return ModelFailed(message, log_tail(clients, ENDPOINT, name, stream or None)[-_LOG_LINES:])
    found = describe(clients, ENDPOINT, name)
    if found is None:
        return ServiceProblem(f"there is no endpoint {name}: `smdp-launch deploy` creates it")
    status = str(found["EndpointStatus"])
    if status != "InService":
        return Refused(f"endpoint {name} does not answer requests yet ({status}): `smdp-launch endpoints` shows it")
    return error


def _message(text: str) -> str:
    """The message of the serving toolkit's JSON, or the text."""
    try:
        loaded = json.loads(text)
    except ValueError:
        return text
    return str(loaded.get("message", text)) if isinstance(loaded, dict) else text
