"""Validate a request against the service's model, with the service's messages: `check_types`, then `violations`.

The service decodes a request before it validates it. A value of a wrong type ends the decoding, so only the first one
is reported. Absent required fields, lengths, ranges, patterns and enumerations are reported together, with a count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.localcloud.errors import ServiceError, validation

#: The shape of instance types, of which the catalogue may list more than an older botocore.
_INSTANCE_TYPE = "TrainingInstanceType"
_SHOWN = 100  # characters of a value in an error message
_STRUCTURE = "Start of structure or map found where not expected."
_LIST = "Start of list found where not expected"
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a String", (str,)),
    "blob": ("a ByteBuffer", (str, bytes)),
    "boolean": ("a Boolean", (bool,)),
    "integer": ("an Integer", (int,)),
    "long": ("a Long", (int,)),
    "float": ("a Float", (int, float)),
    "double": ("a Double", (int, float)),
}


def check_types(shape: Any, value: Any, place: str = "") -> None:
    """Raises ServiceError for the first value of a wrong type or the first field that the model does not have.

    Null means absent. Times are not checked, since they may have several types.
    """
    kind = shape.type_name
    if value is None or kind == "timestamp":
        return
    if kind == "structure":
        _require(isinstance(value, dict), value, "Expected null", place)
        _check_members(shape, value, place)
    elif kind == "list":
        _require(isinstance(value, list), value, "Expected list or null", place)
        for number, one in enumerate(value, 1):
            check_types(shape.member, one, f"{place}.{number}.member")
    elif kind == "map":
        _require(isinstance(value, dict), value, "Expected map or null", place)
        for name, one in value.items():
            check_types(shape.value, one, f"{place}.{name}")
    elif kind in _SCALARS:
        type_name, types = _SCALARS[kind]
        is_valid = isinstance(value, types) and (kind == "boolean" or not isinstance(value, bool))
        _require(is_valid, value, f"{_token(value)} can not be converted to {type_name}", place)


def _check_members(shape: Any, value: Mapping[str, Any], place: str) -> None:
    for name, one in value.items():
        member = shape.members.get(name)
        if member is None:
            known = ", ".join(shape.members)
            raise validation(
                f"The local cloud does not know the field {name!r}{_at(place)}; its service model has: {known}."
            )
        check_types(member, one, _below(place, name))


def _require(is_valid: bool, value: Any, message: str, place: str) -> None:
    if not is_valid:
        reason = _STRUCTURE if isinstance(value, dict) else _LIST if isinstance(value, list) else message
        raise ServiceError("SerializationException", f"{reason}{_at(place)}")


def _token(value: Any) -> str:
    if isinstance(value, bool):
        return f"{str(value).upper()}_VALUE"
    return "STRING_VALUE" if isinstance(value, str | bytes) else "NUMBER_VALUE"


def _at(place: str) -> str:
    """The field's path, which the service itself does not name in such an error."""
    return f" (at '{place}')" if place else ""


def violations(shape: Any, value: Any, place: str = "") -> Iterator[str]:
    """The service's messages, each with a path such as `resourceConfig.instanceCount`. `check_types` has passed."""
    kind = shape.type_name
    if kind == "structure":
        yield from _of_structure(shape, value, place)
        return
    yield from (_failed(value, place, f"Member must {one}") for one in _broken(shape, value))
    if kind == "list":
        yield from _of_list(shape, value, place)
    elif kind == "map":
        yield from _of_map(shape, value, place)


def _of_structure(shape: Any, value: Mapping[str, Any], place: str) -> Iterator[str]:
    for name in shape.required_members:
        if value.get(name) is None:
            yield absent(_below(place, name))
    for name, member in shape.members.items():
        if value.get(name) is not None:
            yield from violations(member, value[name], _below(place, name))


def _of_list(shape: Any, value: list[Any], place: str) -> Iterator[str]:
    """The service reports each wrong structure in a list, but for plain values the whole list with all the limits."""
    if shape.member.type_name in ("structure", "list", "map"):
        for number, one in enumerate(value, 1):
            if one is not None:
                yield from violations(shape.member, one, f"{place}.{number}.member")
    elif any(_breaks(shape.member, one) for one in value):
        yield _failed(value, place, f"Member must satisfy constraint: [{_limits(shape.member)}]")


def _of_map(shape: Any, value: Mapping[str, Any], place: str) -> Iterator[str]:
    if any(_breaks(shape.key, one) for one in value):
        yield _failed(value, place, f"Map keys must satisfy constraint: [{_limits(shape.key)}]")
    if any(_breaks(shape.value, one) for one in value.values()):
        yield _failed(value, place, f"Map value must satisfy constraint: [{_limits(shape.value)}]")


def absent(place: str) -> str:
    return f"Value null at '{place}' failed to satisfy constraint: Member must not be null"


def too_small(value: int, place: str, least: int) -> str:
    return _failed(value, place, f"Member must have value greater than or equal to {least}")


def report(found: list[str]) -> str:
    return f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected: {'; '.join(found)}"


def _breaks(shape: Any, value: Any) -> bool:
    return value is not None and any(_broken(shape, value))


def _broken(shape: Any, value: Any) -> Iterator[str]:
    kind, limits = shape.type_name, shape.metadata
    if kind == "string":
        yield from _text(limits, value, known_instance_types() if shape.name == _INSTANCE_TYPE else frozenset())
    if kind in ("string", "list", "map"):
        yield from _size(limits, value)
    elif kind in ("integer", "long", "float", "double"):
        yield from _range(limits, value)


def _text(limits: Mapping[str, Any], value: str, more: frozenset[str]) -> Iterator[str]:
    if limits.get("enum") and value not in limits["enum"] and value not in more:
        yield f"satisfy enum value set: [{', '.join(limits['enum'])}]"
    pattern = _compiled(limits["pattern"]) if "pattern" in limits else None
    if pattern is not None and not pattern.fullmatch(value):
        yield f"satisfy regular expression pattern: {limits['pattern']}"


def _size(limits: Mapping[str, Any], value: Any) -> Iterator[str]:
    if "max" in limits and len(value) > limits["max"]:
        yield f"have length less than or equal to {limits['max']}"
    if "min" in limits and len(value) < limits["min"]:
        yield f"have length greater than or equal to {limits['min']}"


def _range(limits: Mapping[str, Any], value: float) -> Iterator[str]:
    if "max" in limits and value > limits["max"]:
        yield f"have value less than or equal to {limits['max']}"
    if "min" in limits and value < limits["min"]:
        yield f"have value greater than or equal to {limits['min']}"


def _limits(shape: Any) -> str:
    """All limits of the shape, as the service lists them for maps and lists."""
    limits, sized = shape.metadata, shape.type_name in ("string", "list", "map")
    measure = "length" if sized else "value"
    listed = [f"Member must have {measure} less than or equal to {limits['max']}"] if "max" in limits else []
    listed += [f"Member must have {measure} greater than or equal to {limits['min']}"] if "min" in limits else []
    listed += [f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]"] if limits.get("enum") else []
    listed += [f"Member must satisfy regular expression pattern: {limits['pattern']}"] if "pattern" in limits else []
    return ", ".join(listed)


def _failed(value: object, place: str, what: str) -> str:
    text = _plain(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"Value '{shown}' at '{place}' failed to satisfy constraint: {what}"


def _plain(value: object) -> str:
    """The value as the service prints it: maps as `{a=b, c=d}`, lists as `[a, b]`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}={_plain(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    r"""None for a pattern that is valid in Java but not in Python. Letters and digits of all languages become `\w`,
    which also matches the underscore."""
    try:
        return re.compile(pattern.replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\w").replace(r"\p{Z}", r"\s"))
    except re.error:
        return None


def _below(place: str, name: str) -> str:
    return f"{place}.{_lower(name)}" if place else _lower(name)


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]
