"""The query protocols of STS, IAM, EC2 and CloudWatch's older clients: read forms, write XML, by botocore's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from smdp_launch.localcloud.errors import ServiceError

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_REQUEST_ID = "00000000-0000-0000-0000-000000000000"


def read_form(data: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=10_000))
    except ValueError:
        raise ServiceError("MalformedQueryString", "The body is not a form.") from None


def parameters(form: Mapping[str, str], shape: Any, *, ec2: bool) -> dict[str, Any]:
    """The form's values for `shape`. Names that the shape does not have, such as Action and Version, are ignored."""
    return _Form(form, ec2).structure(shape, "")


class _Form:
    def __init__(self, form: Mapping[str, str], ec2: bool) -> None:
        self._form = form
        self._ec2 = ec2

    def structure(self, shape: Any, prefix: str) -> dict[str, Any]:
        members = shape.members if shape is not None else {}
        values = {name: self._value(one, prefix + self._name(one, name)) for name, one in members.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _name(self, member: Any, name: str) -> str:
        if not self._ec2:
            return str(member.serialization.get("name", name))
        if "queryName" in member.serialization:
            return str(member.serialization["queryName"])
        serialized = str(member.serialization.get("name", name))
        return serialized[:1].upper() + serialized[1:]

    def _value(self, shape: Any, key: str) -> Any:
        if shape.type_name == "structure":
            return self.structure(shape, f"{key}.") if self._has(f"{key}.") else None
        if shape.type_name == "list":
            return self._list(shape, key)
        return _scalar(shape.type_name, self._form[key]) if key in self._form else None

    def _list(self, shape: Any, key: str) -> list[Any] | None:
        flat = self._ec2 or shape.serialization.get("flattened")
        stem = f"{key}." if flat else f"{key}.{shape.member.serialization.get('name', 'member')}."
        found: list[Any] = []
        while (value := self._value(shape.member, f"{stem}{len(found) + 1}")) is not None:
            found.append(value)
        return found if found or key in self._form else None

    def _has(self, stem: str) -> bool:
        return any(name.startswith(stem) for name in self._form)


def _scalar(kind: str, text: str) -> Any:
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
        if kind == "timestamp":
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise ServiceError("MalformedInput", f"{text!r} is not {kind}.") from None
    return text == "true" if kind == "boolean" else text


def answer(operation: Any, namespace: str, result: Mapping[str, Any], *, ec2: bool) -> bytes:
    shape, name = operation.output_shape, operation.name
    body = _xml(shape, result) if shape is not None else ""
    if ec2:
        body = f"{body}<requestId>{_REQUEST_ID}</requestId>"
    else:
        if shape is not None:
            wrapper = shape.serialization.get("resultWrapper", f"{name}Result")
            body = f"<{wrapper}>{body}</{wrapper}>"
        body = f"{body}<ResponseMetadata><RequestId>{_REQUEST_ID}</RequestId></ResponseMetadata>"
    return f'{_XML}<{name}Response xmlns="{namespace}">{body}</{name}Response>'.encode()


def refusal(error: ServiceError, *, ec2: bool) -> bytes:
    fields = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if ec2:
        text = f"<Response><Errors><Error>{fields}</Error></Errors><RequestID>{_REQUEST_ID}</RequestID></Response>"
    else:
        content = f"<Error><Type>Sender</Type>{fields}</Error><RequestId>{_REQUEST_ID}</RequestId>"
        text = f"<ErrorResponse>{content}</ErrorResponse>"
    return f"{_XML}{text}".encode()


def _xml(shape: Any, value: Mapping[str, Any]) -> str:
    return "".join(
        _element(member, str(member.serialization.get("name", name)), value[name])
        for name, member in shape.members.items()
        if value.get(name) is not None
    )


def _element(shape: Any, name: str, value: Any) -> str:
    if shape.type_name == "list":
        if shape.serialization.get("flattened"):
            return "".join(_element(shape.member, name, one) for one in value)
        inner = str(shape.member.serialization.get("name", "member"))
        return f"<{name}>{''.join(_element(shape.member, inner, one) for one in value)}</{name}>"
    if shape.type_name == "structure":
        return f"<{name}>{_xml(shape, value)}</{name}>"
    return f"<{name}>{escape(_text(shape.type_name, value))}</{name}>"


def _text(kind: str, value: Any) -> str:
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return datetime.fromtimestamp(value, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)
