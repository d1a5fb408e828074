"""A log message as a line of text or as an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.event_lines import Line, event_of, split_line
from smdp_launch.plain_text import with_colours, without_controls


@dataclass(frozen=True)
class LogLine:
    """One line of a host's log.

    Args:
        rank: None for what no worker wrote.
        text: without what a terminal would obey.
        coloured: the same with the colours that its writer gave it; empty where it gave none.
        late: it came when a later line of another host had been shown, which is held back up to two seconds for it.
    """

    host: str
    rank: int | None
    text: str
    time_ms: int
    late: bool = False
    coloured: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class JobEvent:
    """An event line (docs/events.md) whose writer may send it. ``fields`` are all its members, NaN and infinities by
    their names, texts without what a terminal would obey; ``worker`` is the rank that wrote it, None for the host and
    the platform."""

    host: str
    name: str
    fields: Mapping[str, Any]
    time_ms: int
    late: bool = False
    worker: int | None = None


def read_line(host: str, message: str, time_ms: int) -> LogLine | JobEvent:
    """A log message as its writer meant it: the entrypoint's ``[host:rank]`` taken off, event lines parsed.

    An event that its writer may not send is the text that it is.
    """
    line = split_line(host, message)
    fields = event_of(line)
    if fields is None:
        return _log_line(host, line, time_ms)
    return JobEvent(host, fields["event"], fields, time_ms, worker=line.rank)


def plain_line(host: str, message: str, time_ms: int) -> LogLine:
    """The same, with event lines as the lines that they are."""
    return _log_line(host, split_line(host, message), time_ms)


def _log_line(host: str, line: Line, time_ms: int) -> LogLine:
    text = without_controls(line.text)
    coloured = with_colours(line.text) if text != line.text else ""
    return LogLine(host, line.rank, text, time_ms, coloured=coloured if coloured != text else "")
