"""The protocols of AWS services: read operation and parameters of a request, write answers and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from smdp_launch.localcloud.errors import ServiceError, as_json
from smdp_launch.localcloud.protocol import cbor, query
from smdp_launch.localcloud.protocol.requests import service_model, with_times
from smdp_launch.localcloud.protocol.signatures import Head

#: botocore's names of services, where they differ from the names in signatures.
MODELS = {"elasticfilesystem": "efs", "servicequotas": "service-quotas", "monitoring": "cloudwatch"}
_QUERY = {"sts", "iam", "ec2", "monitoring"}
_REST = {"elasticfilesystem"}
_JSON_TYPE = "application/x-amz-json-1.1"
_NUMBER = re.compile(r"[0-9]{1,18}")
_CBOR_PATH = re.compile(r"/service/\w+/operation/(\w+)")


@dataclass(frozen=True)
class Reply:
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


class Json:
    """AWS JSON; also the form of errors for unknown services."""

    def __init__(self, service: str) -> None:
        self.service = service

    def read(self, head: Head, data: bytes) -> tuple[str, dict[str, Any]]:
        if head.method != "POST" or head.path != "/":
            raise unknown(self.service, head.path)
        return head.one("x-amz-target").rpartition(".")[2], _object(data)

    def answer(self, _operation: str, result: Mapping[str, Any]) -> Reply:
        return Reply(_JSON_TYPE, json.dumps(result).encode())

    def refuse(self, error: ServiceError) -> Reply:
        return Reply(_JSON_TYPE, as_json(error), {"x-amzn-ErrorType": error.code})


class Rest(Json):
    """REST JSON: method and path name the operation, path and query have the parameters."""

    def read(self, head: Head, _: bytes) -> tuple[str, dict[str, Any]]:
        model = service_model(MODELS[self.service])
        for name in model.operation_names:
            operation = model.operation_model(name)
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(operation.http["requestUri"]))
            match = re.fullmatch(pattern, head.path)
            if match and operation.http["method"] == head.method:
                return name, self._parameters(operation.input_shape, match.groupdict(), head.query)
        raise unknown(self.service, head.path)

    def _parameters(self, shape: Any, path: Mapping[str, str], text: str) -> dict[str, Any]:
        sent = dict(parse_qsl(text, keep_blank_values=True)) | {name: unquote(one) for name, one in path.items()}
        names = {str(member.serialization.get("name", name)): (name, member) for name, member in shape.members.items()}
        parameters = {}
        for key, value in sent.items():
            name, member = names.get(key, (key, None))
            is_number = member is not None and member.type_name == "integer" and _NUMBER.fullmatch(value)
            parameters[name] = int(value) if is_number else value
        return parameters


class Query:
    def __init__(self, service: str) -> None:
        self.service = service
        self._ec2 = service == "ec2"

    @property
    def _model(self) -> Any:
        return service_model(MODELS.get(self.service, self.service))

    def read(self, head: Head, data: bytes) -> tuple[str, dict[str, Any]]:
        form = query.read_form(data)
        name = form.get("Action", "")
        if head.method != "POST" or head.path != "/" or name not in self._model.operation_names:
            raise ServiceError("InvalidAction", f"The local cloud does not have {self.service} {name!r}.")
        shape = self._model.operation_model(name).input_shape
        return name, query.parameters(form, shape, ec2=self._ec2)

    def answer(self, operation: str, result: Mapping[str, Any]) -> Reply:
        namespace = str(self._model.metadata.get("xmlNamespace", ""))
        body = query.answer(self._model.operation_model(operation), namespace, result, ec2=self._ec2)
        return Reply("text/xml", body)

    def refuse(self, error: ServiceError) -> Reply:
        return Reply("text/xml", query.refusal(error, ec2=self._ec2))


class Cbor:
    _HEADERS = {"smithy-protocol": "rpc-v2-cbor"}  # noqa: RUF012 (never changed)

    def __init__(self, service: str) -> None:
        self.service = service

    def read(self, head: Head, data: bytes) -> tuple[str, dict[str, Any]]:
        match = _CBOR_PATH.fullmatch(head.path)
        if head.method != "POST" or match is None:
            raise unknown(self.service, head.path)
        try:
            parameters = cbor.decode(data) if data else {}
        except ValueError as error:
            raise ServiceError("SerializationException", f"The body is not CBOR: {error}.") from None
        if not isinstance(parameters, dict):
            raise ServiceError("SerializationException", "The body is not a map.")
        return match[1], parameters

    def answer(self, operation: str, result: Mapping[str, Any]) -> Reply:
        shape = service_model(MODELS.get(self.service, self.service)).operation_model(operation).output_shape
        return Reply("application/cbor", cbor.encode(with_times(shape, result, cbor.Timestamp)), self._HEADERS)

    def refuse(self, error: ServiceError) -> Reply:
        body = cbor.encode({"__type": error.code, "message": error.message})
        return Reply("application/cbor", body, self._HEADERS)


Protocol = Json | Query | Cbor


def speaks_cbor(head: Head) -> bool:
    return _CBOR_PATH.fullmatch(head.path) is not None


def protocol(service: str, head: Head) -> Protocol:
    """The protocol of a request, read from its head."""
    if speaks_cbor(head):
        return Cbor(service)
    if service in _REST:
        return Rest(service)
    return Query(service) if service in _QUERY and not head.values("x-amz-target") else Json(service)


def unknown(service: str, name: str) -> ServiceError:
    return ServiceError("UnknownOperationException", f"The local cloud does not have {service} {name!r}.")


def _object(data: bytes) -> dict[str, Any]:
    try:
        parameters = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise ServiceError("SerializationException", "The body is not JSON, or is nested too deeply.") from None
    if not isinstance(parameters, dict):
        raise ServiceError("SerializationException", "The body is not a JSON object.")
    return parameters
