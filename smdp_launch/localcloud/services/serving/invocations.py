"""InvokeEndpoint of `sagemaker-runtime`: a request for an endpoint goes to one of its containers.

InvokeEndpointAsync, which has the same address, is in `async_invocations`.
"""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.localcloud import endpoint_state
from smdp_launch.localcloud.endpoint_state import EndpointState
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.layout import JOB_NAME, EndpointFolder, StateFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.protocols import Reply, unknown
from smdp_launch.localcloud.protocol.signatures import Head
from smdp_launch.localcloud.protocol.wsgi import INVOCATION_LIMIT
from smdp_launch.localcloud.runtime.serving.routing import (
    Answer,
    Balancer,
    NoAnswer,
    NotConnected,
    TooManyRequests,
    post,
)
from smdp_launch.localcloud.services.logs.calls import ENDPOINTS
from smdp_launch.localcloud.services.serving import async_invocations

_PATH = re.compile(r"/endpoints/([^/]{1,63})/(async-)?invocations")
SERVERLESS_LIMIT = 4 * 1024 * 1024  # bytes of a request and of an answer of a serverless variant
_LONGEST_HEADER = 1024
_LONGEST_MESSAGE = 2048  # characters of a container's answer in an error
_SERVED = ("InService", "Updating")  # statuses in which requests are answered
_PASSED_ON = (
    "content-type",
    "accept",
    "x-amzn-sagemaker-custom-attributes",
    "x-amzn-sagemaker-inference-id",
    "x-amzn-sagemaker-session-id",
)
_NOT_SUPPORTED = {
    "x-amzn-sagemaker-target-model": "TargetModel",
    "x-amzn-sagemaker-target-container-hostname": "TargetContainerHostname",
    "x-amzn-sagemaker-inference-component": "InferenceComponentName",
    "x-amzn-sagemaker-enable-explanations": "EnableExplanations",
}
_VARIANT = "x-amzn-sagemaker-target-variant"
_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"


class InvocationService:
    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._balancer = Balancer()
        self._lock = threading.Lock()
        self._cache: dict[Path, tuple[tuple[int, int], EndpointState]] = {}

    def answer(self, head: Head, body: bytes) -> Reply:
        """The answer to a verified request. Raises ServiceError."""
        match = _PATH.fullmatch(head.path)
        if match is None or head.method != "POST":
            raise unknown("sagemaker-runtime", head.path)
        if match[2]:
            state, folder = self._read(match[1]), EndpointFolder(self._state.endpoints / match[1])
            variant = self._balancer.choose(state.variants) or state.variants[0]  # the request waits for a host
            return async_invocations.submit(folder, state, variant["name"], head, body)
        headers = _headers(head)
        return self._invoke(match[1], body, headers, head.one(_VARIANT))

    def _invoke(self, name: str, body: bytes, headers: Mapping[str, str], wanted: str) -> Reply:
        failed: set[str] = set()
        while True:
            # Read again after a refused connection: an update may have replaced the hosts.
            variant = self._variant(name, wanted)
            if time.time() < variant["refuses_until"]:
                raise ServiceError("ServiceUnavailable", f"Endpoint {name} is overloaded: a fault is injected.", 503)
            limits = _limits(variant, len(body))
            hosts = [one for one in variant["hosts"] if one["instance"] not in failed]
            if not hosts:
                raise _unavailable(name)
            try:
                with self._balancer.host(hosts, limits.requests) as host:
                    answer = post(host, body, headers, variant["timeout"], limits.answer)
            except TooManyRequests:
                raise ServiceError("ThrottlingException", "Rate exceeded", 429) from None
            except NotConnected:
                failed.add(host["instance"])
                continue
            except NoAnswer as error:
                raise _model_error(name, variant["name"], host, 0, str(error)) from error
            return _reply(name, variant["name"], host, answer)

    def _variant(self, name: str, wanted: str) -> Mapping[str, Any]:
        """The variant for a request. Raises ServiceError."""
        state = self._read(name)
        if state.asynchronous is not None:
            raise _invalid(f"Endpoint {name} is an asynchronous inference endpoint: use InvokeEndpointAsync.")
        if wanted:
            found = [one for one in state.variants if one["name"] == wanted]
            if not found:
                raise _invalid(f"Variant {wanted} not found for Request.")
            return found[0]
        chosen = self._balancer.choose(state.variants)
        if chosen is None:
            raise _unavailable(name)
        return chosen

    def _read(self, name: str) -> EndpointState:
        """Raises ServiceError for an endpoint that does not exist in the region, or is not in service."""
        folder = EndpointFolder(self._state.endpoints / name)
        state = self._cached(folder.state) if JOB_NAME.fullmatch(name) else None
        if state is None or folder.region != caller.region() or state.status not in _SERVED or folder.stop.exists():
            raise _invalid(f"Endpoint {name} of account {ACCOUNT} not found.")
        return state

    def _cached(self, path: Path) -> EndpointState | None:
        """The endpoint's state, read again when the file has changed."""
        try:
            status = path.stat()
        except OSError:
            with self._lock:
                self._cache.pop(path, None)
            return None
        stamp = (status.st_mtime_ns, status.st_ino)
        with self._lock:
            known = self._cache.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        state = endpoint_state.read(path)
        if state is not None:
            with self._lock:
                self._cache[path] = (stamp, state)
        return state


@dataclass(frozen=True)
class _Limits:
    """`answer`: bytes of an answer. `requests`: in progress at once."""

    answer: int
    requests: float


def _limits(variant: Mapping[str, Any], size: int) -> _Limits:
    """The limits of a variant. Raises ServiceError for a request of `size` bytes that is too large for it."""
    serverless = variant["serverless"]
    if serverless is None:
        return _Limits(INVOCATION_LIMIT, math.inf)
    if size > SERVERLESS_LIMIT:
        raise _invalid(f"Request {uuid.uuid4()} has oversize body.")
    return _Limits(SERVERLESS_LIMIT, serverless["MaxConcurrency"])


def _headers(head: Head) -> dict[str, str]:
    """The headers that the container gets. Raises ServiceError."""
    for name, field in _NOT_SUPPORTED.items():
        if head.values(name):
            raise _invalid(f"The local cloud does not support {field}.")
    found = {name: head.one(name) for name in _PASSED_ON if head.one(name)}
    for name, value in found.items():
        if len(value) > _LONGEST_HEADER or not value.isascii():
            raise _invalid(
                f"1 validation error detected: Value at '{name}' failed to satisfy constraint: Member must have length "
                f"less than or equal to {_LONGEST_HEADER}, in ASCII"
            )
    return found


def _reply(name: str, variant: str, host: Mapping[str, Any], answer: Answer) -> Reply:
    if not 200 <= answer.status < 300:
        raise _model_error(name, variant, host, answer.status, answer.body.decode("utf-8", "replace"))
    headers = {"x-Amzn-Invoked-Production-Variant": variant}
    if _ATTRIBUTES in answer.headers:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = answer.headers[_ATTRIBUTES]
    return Reply(answer.headers.get("content-type", "application/octet-stream"), answer.body, headers)


def _model_error(name: str, variant: str, host: Mapping[str, Any], status: int, message: str) -> ServiceError:
    """As the platform words the error of a container; status 0 stands for no answer."""
    kind = "client" if 400 <= status < 500 else "server"
    region, text = caller.region(), message[:_LONGEST_MESSAGE]
    stream = f"arn:aws:logs:{region}:{ACCOUNT}:log-group:{ENDPOINTS}{name}:log-stream:{variant}/{host['instance']}"
    return ServiceError(
        "ModelError",
        f'Received {kind} error ({status}) from primary with message "{text}". See the log group {ENDPOINTS}{name} in '
        f"account {ACCOUNT} for more information.",
        424,
        fields={"OriginalStatusCode": status, "OriginalMessage": text, "LogStreamArn": stream},
    )


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message)


def _unavailable(name: str) -> ServiceError:
    message = f"No container of endpoint {name} is healthy now. The local cloud restarts them; try again."
    return ServiceError("ServiceUnavailable", message, 503)
