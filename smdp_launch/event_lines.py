"""A line of a host's log: who wrote it, and the event that it holds (docs/events.md).

The entrypoint and the local cloud begin each line with its writer: ``[HOST:RANK] `` for a worker, ``[HOST] `` for
themselves, which nothing that a job writes can begin with. That prefix is the only proof of who sent an event; the
fields of an event prove nothing.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from smdp_launch.plain_text import plain_values

_EVENT = '{"smdp_event":'
#: The host is ``?`` until the entrypoint knows its name.
_PREFIX = re.compile(r"\[(?P<host>[^\]:\s]+)(?::(?P<rank>[0-9]{1,9}))?\] ?")
_UNNAMED = "?"

#: What only the entrypoint and the platform can know. Sent by a worker, or by nobody knows whom, it is text.
HOST_EVENTS = frozenset({"workers_started", "worker_exit", "host_failed", "checkpoints_restored", "fault"})
#: What the engine of a rank reports of that rank.
_ENGINE_EVENTS = frozenset({"engine"})


@dataclass(frozen=True)
class Line:
    """Args:
    rank: the worker that wrote it; None for another writer.
    by_host: the entrypoint or the platform wrote it. False, and no rank, for a log that no entrypoint wrote.
    """

    text: str
    rank: int | None
    by_host: bool


def split_line(host: str, message: str) -> Line:
    """A message of this host's log."""
    prefix = _PREFIX.match(message)
    if prefix is None or prefix["host"] not in (host, _UNNAMED):
        return Line(message, None, False)
    rank = int(prefix["rank"]) if prefix["rank"] is not None else None
    return Line(message[prefix.end() :], rank, rank is None)


def event_of(line: Line) -> dict[str, Any] | None:
    """The fields of the event that the line holds, if its writer may send it: such that they can be written as JSON and
    as UTF-8, and shown. Numbers that JSON has no form for are their names, such as ``"nan"`` and ``"-inf"``, as
    `smdp_engine.progress` writes them; half a surrogate pair is U+FFFD.
    """
    if not line.text.startswith(_EVENT):
        return None
    try:
        fields = plain_values(json.loads(line.text, parse_constant=_number, parse_float=_number))
    except (ValueError, RecursionError):  # whatever a script may print, it is at least a line
        return None
    return fields if isinstance(fields, dict) and _may_send(line, fields) else None


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
