"""InvokeEndpointAsync of `sagemaker-runtime`: writes the request for the endpoint's supervisor, and answers at once."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.endpoint_state import EndpointState
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.files import write_json
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.protocol.protocols import Reply
from smdp_launch.localcloud.protocol.signatures import Head

_HEAD = "x-amzn-sagemaker-"
_PASSED_ON = {
    "content-type": "Content-Type",
    "accept": "Accept",
    "custom-attributes": "X-Amzn-SageMaker-Custom-Attributes",
}
_NOT_SUPPORTED = ("s3outputpathextension", "filename")
_MOST_BODY = 128_000  # bytes of a request without an InputLocation
_INFERENCE_ID = re.compile(r"[!-~][ -~]{0,63}")
_DEFAULT_TIMEOUT, _LONGEST_TIMEOUT = 900, 3600  # seconds for the answer of a container
_DEFAULT_LIFE, _SHORTEST_LIFE, _LONGEST_LIFE = 21600, 60, 21600  # seconds until a container must have the request


def submit(folder: EndpointFolder, state: EndpointState, variant: str, head: Head, body: bytes) -> Reply:
    """Write the request. Raises ServiceError for a malformed one, and for an endpoint without AsyncInferenceConfig."""
    config = state.asynchronous
    if config is None:
        raise _invalid(f"Endpoint {folder.name} is not an asynchronous inference endpoint.")
    for name in _NOT_SUPPORTED:
        if head.values(_HEAD + name):
            raise _invalid(f"The local cloud does not support the header {_HEAD}{name}.")
    address = _input(head, body)
    own, inference = str(uuid.uuid4()), head.one(f"{_HEAD}inference-id") or str(uuid.uuid4())
    if not _INFERENCE_ID.fullmatch(inference):
        raise _invalid("InferenceId must have 1 to 64 printable characters.")
    output, failure = _places(config, own)
    life = _number(head, "requestttlseconds", _DEFAULT_LIFE, _SHORTEST_LIFE, _LONGEST_LIFE)
    record = {
        "id": own,
        "variant": variant,
        "input": address,
        "body": "" if address else base64.b64encode(body).decode("ascii"),
        "headers": {one: head.one(_HEAD + name) for name, one in _PASSED_ON.items() if head.one(_HEAD + name)},
        "output": output,
        "failure": failure,
        "timeout": _number(head, "invocationtimeoutseconds", _DEFAULT_TIMEOUT, 1, _LONGEST_TIMEOUT),
        "expires": time.time() + life,
    }
    folder.requests.mkdir(exist_ok=True)
    write_json(folder.requests / f"{time.time_ns():020d}-{own}.json", record)
    headers = {"X-Amzn-SageMaker-OutputLocation": output}
    if failure:
        headers["X-Amzn-SageMaker-FailureLocation"] = failure
    return Reply("application/json", json.dumps({"InferenceId": inference}).encode(), headers, 202)


def _input(head: Head, body: bytes) -> str:
    """The address of the input; empty for an input in the body."""
    address = head.one(f"{_HEAD}inputlocation")
    if bool(address) == bool(body):
        raise _invalid("A request must have either an InputLocation or a Body.")
    if address and not re.fullmatch(r"s3://[^/]+/.+", address):
        raise _invalid(f"InputLocation must be the S3 address of an object, not {address!r}.")
    if len(body) > _MOST_BODY:
        raise _invalid(f"Body must have at most {_MOST_BODY} bytes; upload it and send its InputLocation.")
    return address


def _places(config: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The addresses of the answer and of an error; the second is empty where the configuration has none."""
    places = config["OutputConfig"]
    output, failure = places["S3OutputPath"].rstrip("/"), places.get("S3FailurePath", "").rstrip("/")
    return f"{output}/{name}.out", f"{failure}/{name}-error.out" if failure else ""


def _number(head: Head, name: str, default: int, least: int, most: int) -> int:
    text = head.one(_HEAD + name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise _invalid(f"{_HEAD}{name} must be a number from {least} to {most}, not {text!r}.")
    return int(text)


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message)
