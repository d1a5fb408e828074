"""What the service's model says of values beyond their types: lengths, ranges, patterns and enumerations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from smdp_launch.catalog.limits import known_instance_types

#: An older botocore knows fewer types than the catalogue.
_GROWING = "TrainingInstanceType"
_SHOWN = 100  # characters of a value in an error


def violations(shape: Any, value: Any, place: str = "") -> Iterator[str]:
    """In the service's words, each with its place, such as `resourceConfig.instanceCount`. Types are sound already."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                yield from violations(member, value[name], f"{place}.{_lower(name)}" if place else _lower(name))
        return
    yield from _own(shape, value, place)
    if shape.type_name == "list":
        for number, one in enumerate(value, 1):
            yield from violations(shape.member, one, f"{place}.{number}.member")
    elif shape.type_name == "map":
        for name, one in value.items():
            yield from violations(shape.key, name, f"{place}.{name}.key")
            yield from violations(shape.value, one, f"{place}.{name}.value")


def report(found: list[str]) -> str:
    return f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected: {'; '.join(found)}"


def _own(shape: Any, value: Any, place: str) -> Iterator[str]:
    kind, limits = shape.type_name, shape.metadata
    if kind == "string":
        yield from _text(limits, value, place, known_instance_types() if shape.name == _GROWING else frozenset())
    if kind in ("string", "list", "map"):
        yield from _size(limits, value, place)
    elif kind in ("integer", "long", "float", "double"):
        yield from _range(limits, value, place)


def _text(limits: Mapping[str, Any], value: str, place: str, more: frozenset[str]) -> Iterator[str]:
    if limits.get("enum") and value not in limits["enum"] and value not in more:
        yield _failed(value, place, f"satisfy enum value set: [{', '.join(limits['enum'])}]")
    pattern = _compiled(limits["pattern"]) if "pattern" in limits else None
    if pattern is not None and not pattern.fullmatch(value):
        yield _failed(value, place, f"satisfy regular expression pattern: {limits['pattern']}")


def _size(limits: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
    if "max" in limits and len(value) > limits["max"]:
        yield _failed(value, place, f"have length less than or equal to {limits['max']}")
    if "min" in limits and len(value) < limits["min"]:
        yield _failed(value, place, f"have length greater than or equal to {limits['min']}")


def _range(limits: Mapping[str, Any], value: float, place: str) -> Iterator[str]:
    if "max" in limits and value > limits["max"]:
        yield _failed(value, place, f"have value less than or equal to {limits['max']}")
    if "min" in limits and value < limits["min"]:
        yield _failed(value, place, f"have value greater than or equal to {limits['min']}")


def _failed(value: object, place: str, what: str) -> str:
    text = str(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"Value '{shown}' at '{place}' failed to satisfy constraint: Member must {what}"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what Java understands and Python does not. Letters and digits of all languages become words, which have
    the underscore too."""
    try:
        return re.compile(pattern.replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\w").replace(r"\p{Z}", r"\s"))
    except re.error:
        return None


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]
