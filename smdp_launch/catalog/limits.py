"""The limits of the service's requests: the shapes that tools/distill_limits.py wrote, and what only documents say."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table


class Shape(NamedTuple):
    """What one value of a request may be.

    Args:
        kind: structure, list, map, string, integer, long, float, double, boolean or timestamp.
        minimum: of a number its value, of text its characters, of a list or map its entries; so is ``maximum``.
        pattern: for the whole text, to be compiled with ``re.ASCII``.
        members: of a structure, the shape's name by member. ``element``, ``key`` and ``value`` are names of shapes too.
    """

    name: str
    kind: str
    required: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    pattern: str | None = None
    enum: tuple[str, ...] = ()
    members: Mapping[str, str] = MappingProxyType({})
    element: str | None = None
    key: str | None = None
    value: str | None = None


class DocumentedLimit(NamedTuple):
    """A limit that the service's model lacks."""

    source: str
    minimum: int | None = None
    maximum: int | None = None


@functools.cache
def shape(name: str) -> Shape:
    """Raises:
    KeyError: no request has such a shape.
    """
    row: dict[str, Any] = table("limits")["shapes"][name]
    return Shape(
        name=name,
        kind=row["type"],
        required=tuple(row.get("required", ())),
        minimum=row.get("min"),
        maximum=row.get("max"),
        pattern=row.get("pattern"),
        enum=tuple(row.get("enum", ())),
        members=row.get("members", {}),
        element=row.get("member"),
        key=row.get("key"),
        value=row.get("value"),
    )


def request_shape(operation: str) -> Shape:
    """The shape of an operation's input.

    Raises:
        KeyError: the operation is not among the distilled ones.
    """
    return shape(table("limits")["operations"][operation])


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def documented_limit(path: str) -> DocumentedLimit | None:
    """What documents state of the member at ``path``, such as ``ResourceConfig.InstanceCount`` or
    ``InputDataConfig.*.ChannelName``."""
    row = table("documented_limits")["limits"].get(path)
    if row is None:
        return None
    return DocumentedLimit(row["source"], row.get("min"), row.get("max"))


def pattern_in_words(shape_name: str) -> str | None:
    """What the pattern of a shape asks for, to stand behind "has to be"."""
    found: str | None = table("documented_limits")["patterns"].get(shape_name)
    return found


def known_instance_types() -> frozenset[str]:
    """Every type that the service's model takes for training, with GPUs or without."""
    return frozenset(shape("TrainingInstanceType").enum)
