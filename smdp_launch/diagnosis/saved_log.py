"""Reads the events of a run from a saved log, such as a CloudWatch export or the output of `logs`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from smdp_launch.event_lines import event_of, split_line
from smdp_launch.run_metrics.run import RunMetrics

#: The entrypoint's prefix at the start of a line, or after the time that an export puts before it.
_ENTRYPOINT = re.compile(r"(?:^|\s|\")(?P<line>\[(?P<host>[^\]:\s]+)(?::\d{1,9})?\] ?\{.*)$")
#: The prefix of `smdp-launch logs`: ``2026-11-26 10:00:00.000Z algo-1:0 | ``.
_LOGS = re.compile(r"^\S+ \S+ (?P<host>[^\s:|]+)(?P<rank>:\d{1,9})?\s* \| (?P<text>\{.*)$")


def read_log(lines: Iterable[str]) -> RunMetrics:
    """The series of the events in the lines. Other lines are left out."""
    found = []
    for text in lines:
        event = _event(text.rstrip("\r\n"))
        if event is not None:
            found.append((_time(event[2]), *event))
    metrics = RunMetrics()
    for at, host, worker, fields in sorted(found, key=lambda one: one[0]):
        metrics.add(fields["event"], fields, host, worker, at)
    return metrics


def _event(text: str) -> tuple[str, int | None, dict[str, Any]] | None:
    match = _ENTRYPOINT.search(text)
    if match is not None:
        host, written = match["host"], match["line"]
    elif (match := _LOGS.match(text)) is not None:
        host, written = match["host"], f"[{match['host']}{match['rank'] or ''}] {match['text']}"
    else:
        return None
    line = split_line(host, written)
    fields = event_of(line)
    return (host, line.rank, fields) if fields is not None else None


def _time(fields: dict[str, Any]) -> float:
    value = fields.get("time")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
