"""Reads the events of a run from a saved log: an export of CloudWatch, or the output of `logs` or `metrics`.

    text            lines of the job, also after times and names of streams, and between tabs; or as `logs` prints them
    CSV             a cell is a line of the job
    JSON document   a text in it is a line of the job, as ``events[].message``; or an object has it, as of `logs --json`
    JSON lines      each line is such a document; or an event, as `metrics` prints it

Each of them may be compressed with gzip.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from smdp_launch.event_lines import EVENT_VERSION, event_of, split_line
from smdp_launch.run_metrics.run import RunMetrics

#: What is read, for people.
FORMS = (
    "text, CSV and JSON exports of CloudWatch, and the output of `smdp-launch logs` and `smdp-launch metrics`, each of "
    "them also compressed with gzip"
)
#: The entrypoint's prefix at the start of a line, or after the time that an export puts before it.
_ENTRYPOINT = re.compile(r"(?:^|\s)(?P<line>\[(?P<host>[^\]:\s]+)(?::\d{1,9})?\] ?\{.*)$")
#: The prefix of `smdp-launch logs`: ``2026-11-26 10:00:00.000Z algo-1:0 | ``.
_LOGS = re.compile(r"^\S+ \S+ (?P<host>[^\s:|]+)(?P<rank>:\d{1,9})?\s* \| (?P<text>\{.*)$")
#: The beginning of a JSON document. A line of a job begins with ``[HOST``.
_JSON = re.compile(r"\s*(?:\{|\[\s*(?:[\[{\"]|$))")
_GZIP = b"\x1f\x8b"
#: An event in a quoted cell of a CSV file.
_CSV_EVENT = '{""smdp_event""'

_Event = tuple[str, int | None, Mapping[str, Any]]


class NoEventsError(ValueError):
    """The file has lines, and no event of a job."""


def read_log(file: io.BufferedReader) -> RunMetrics:
    """The series of the events in a file.

    Raises:
        NoEventsError: it is not empty, and has no event.
        OSError, EOFError, zlib.error: it cannot be read or unpacked.
    """
    is_empty, found = _read(file)
    if not found and not is_empty:
        raise NoEventsError
    metrics = RunMetrics()
    for host, worker, fields in sorted(found, key=lambda one: _time(one[2])):
        metrics.add(fields["event"], fields, host, worker, _time(fields))
    return metrics


def _read(file: io.BufferedReader) -> tuple[bool, list[_Event]]:
    """Whether the file has no text, and its events."""
    unpacked = gzip.GzipFile(fileobj=file) if file.peek(len(_GZIP)).startswith(_GZIP) else file
    with io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "")
        return not first, list(_events(first, lines))


def _events(first: str, others: Iterable[str]) -> Iterator[_Event]:
    if _JSON.match(first) and _parsed(first) is None:  # the document has several lines
        whole = first + "".join(others)
        document = _parsed(whole)
        if document is not None:
            yield from _in_json(document)
            return
        others = whole.split("\n")
    else:
        yield from _in_line(first)
    for line in others:
        yield from _in_line(line)


def _in_line(line: str) -> Iterator[_Event]:
    if line.startswith("{"):
        yield from _in_json(_parsed(line))
        return
    parts = line.rstrip("\r\n").split("\t")
    if _CSV_EVENT in line:
        try:
            parts = next(csv.reader([line]), [])
        except csv.Error:  # a cell is too long
            return
    yield from filter(None, map(_in_text, parts))


def _in_json(document: Any) -> Iterator[_Event]:
    left = [document]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield from filter(None, map(_in_text, one.splitlines()))
        elif isinstance(one, list):
            left += reversed(one)
        elif isinstance(one, dict) and isinstance(one.get("host"), str) and ("text" in one or "metrics" in one):
            text = json.dumps({"smdp_event": EVENT_VERSION, **one}) if "metrics" in one else one["text"]
            found = _event(one["host"], one.get("rank"), text)
            yield from [found] if found is not None else []
        elif isinstance(one, dict):
            left += reversed(one.values())


def _in_text(text: str) -> _Event | None:
    match = _ENTRYPOINT.search(text)
    if match is not None:
        return _parsed_line(match["host"], match["line"])
    match = _LOGS.match(text)
    return _event(match["host"], match["rank"] and match["rank"][1:], match["text"]) if match is not None else None


def _event(host: str, rank: Any, text: Any) -> _Event | None:
    """An event that stands apart from its host and rank."""
    return _parsed_line(host, f"[{host}{f':{rank}' if rank is not None else ''}] {text}")


def _parsed_line(host: str, written: str) -> _Event | None:
    line = split_line(host, written)
    fields = event_of(line)
    return (host, line.rank, fields) if fields is not None else None


def _parsed(text: str) -> Any:
    """None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _time(fields: Mapping[str, Any]) -> float:
    value = fields.get("time")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
