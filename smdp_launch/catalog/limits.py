"""The limits of the service's requests: shapes from tools/distill_limits.py, and limits that only documents state."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table


class Shape(NamedTuple):
    """The limits of one value of a request.

    Args:
        kind: structure, list, map, string, integer, long, float, double, boolean or timestamp.
        minimum, maximum: bounds of a number's value, of a text's characters, or of a list's or map's entries.
        pattern: for the whole text, to be compiled with ``re.ASCII``.
        members: the name of the shape of each field of a structure. ``element``, ``key`` and ``value`` are names too.
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
    """A limit that only documents state, not the service's model."""

    source: str
    minimum: int | None = None
    maximum: int | None = None
    values: tuple[int, ...] = ()


@functools.cache
def shape(name: str) -> Shape:
    """The shape called ``name``.

    Raises:
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
        KeyError: the table does not have the operation.
    """
    return shape(table("limits")["operations"][operation])


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def documented_limit(path: str) -> DocumentedLimit | None:
    """The documented limit of the field at ``path``, such as ``ResourceConfig.InstanceCount`` or
    ``InputDataConfig.*.ChannelName``."""
    row = table("documented_limits")["limits"].get(path)
    if row is None:
        return None
    return DocumentedLimit(row["source"], row.get("min"), row.get("max"), tuple(row.get("values", ())))


def pattern_in_words(shape_name: str) -> str | None:
    """A description of a shape's pattern, for messages: it follows "must be"."""
    description: str | None = table("documented_limits")["patterns"].get(shape_name)
    return description


def known_instance_types() -> frozenset[str]:
    """Every type that the service's model allows for training, with GPUs or without."""
    return frozenset(shape("TrainingInstanceType").enum)


def endpoint_types() -> frozenset[str]:
    """Every type that the service's model allows for an endpoint."""
    return frozenset(shape("ProductionVariantInstanceType").enum)


def transform_types() -> frozenset[str]:
    """Every type that the service's model allows for a batch transform."""
    return frozenset(shape("TransformInstanceType").enum)
