"""Parses a line of a host's log: its writer, and the event in it (docs/reference/events.md).

The entrypoint and the local cloud put a prefix before each line: ``[HOST:RANK] `` for a worker, ``[HOST] `` for their
own lines. A job cannot write the latter. Only the prefix proves which process sent an event; the fields of an event
prove nothing.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from smdp_launch.plain_text import plain_values

_EVENT = '{"smdp_event":'
#: Version of the form; raised when a field changes its meaning or is removed. An event of another version is a line.
EVENT_VERSION = 1
#: The host is ``?`` until the entrypoint knows its name.
_PREFIX = re.compile(r"\[(?P<host>[^\]:\s]+)(?::(?P<rank>[0-9]{1,9}))?\] ?")
_UNNAMED = "?"

#: Events that only the entrypoint and the platform may send. From a worker or an unknown writer they are text.
HOST_EVENTS = frozenset(
    {"workers_started", "worker_exit", "host_failed", "checkpoints_restored", "fault", "resources", "network"}
    | {"hang", "hang_cause"}
)
#: Events that the engine of a rank may send about that rank.
_ENGINE_EVENTS = frozenset({"engine", "timing"})


@dataclass(frozen=True)
class Line:
    """Args:
    rank: of the worker that wrote it; None for another writer.
    by_host: the entrypoint or the platform wrote it. False without a rank: a log without an entrypoint.
    """

    text: str
    rank: int | None
    by_host: bool


def split_line(host: str, message: str) -> Line:
    """Split a message of this host's log into its prefix and text."""
    prefix = _PREFIX.match(message)
    if prefix is None or prefix["host"] not in (host, _UNNAMED):
        return Line(message, None, False)
    rank = int(prefix["rank"]) if prefix["rank"] is not None else None
    return Line(message[prefix.end() :], rank, rank is None)


def event_of(line: Line) -> dict[str, Any] | None:
    """The fields of the event in the line; None if there is none, or its writer may not send it.

    The fields can be written as JSON and UTF-8, and shown. Numbers without a JSON form are their names, such as
    ``"nan"`` and ``"-inf"``, as `smdp_engine.progress` writes them. A lone surrogate becomes U+FFFD.
    """
    if not line.text.startswith(_EVENT):
        return None
    try:
        fields = plain_values(json.loads(line.text, parse_constant=_number, parse_float=_number, parse_int=_integer))
    except (ValueError, RecursionError):  # a script may print anything: it is a line then
        return None
    if not isinstance(fields, dict) or fields.get("smdp_event") != EVENT_VERSION:
        return None
    return fields if _may_send(line, fields) else None


def _may_send(line: Line, fields: dict[str, Any]) -> bool:
    name = fields.get("event")
    if not isinstance(name, str):
        return False
    if name in _ENGINE_EVENTS:
        return line.rank is not None and fields.get("rank") == line.rank
    return line.by_host or name not in HOST_EVENTS


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else str(value)


def _integer(text: str) -> int | str:
    value = int(text)
    try:
        float(value)
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    return value
