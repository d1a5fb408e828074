"""One log stream: an append-only file with one JSON object a line, in the order of their timestamps (`host_log`).

Only whole lines are read, because the last one may not be written completely. Places are byte offsets in the file.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from smdp_launch.localcloud.errors import ServiceError

MOST_EVENTS = 10_000  # the service's limits of a page
MOST_BYTES = 1024 * 1024
_OVERHEAD = 26  # bytes that the service adds to the size of each event (PutLogEvents)
_BLOCKS = (4096, MOST_BYTES)  # bytes of the first and of the largest read

Data = bytes | mmap.mmap


class Span(NamedTuple):
    """Lines from byte `start` to before byte `end`."""

    start: int
    end: int


class Line(NamedTuple):
    start: int
    end: int
    event: dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Events of a stream, and the part of its file from byte `start` to `end` that has them."""

    events: list[dict[str, Any]]
    start: int
    end: int


@contextmanager
def mapped(path: Path) -> Iterator[Data]:
    """The file's bytes, read only when they are used; empty for a job that was deleted meanwhile."""
    with opened(path) as file:
        if file is None or os.fstat(file.fileno()).st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes] | None]:
    """The open file; None for a job that was deleted meanwhile."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    with file:
        yield file


def stored_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def size(event: Mapping[str, Any]) -> int:
    """The bytes of an event that count towards the limit of a page."""
    return len(event["message"].encode(errors="surrogatepass")) + _OVERHEAD


def in_range(data: Data, since: int | None, until: int | None) -> Span:
    """The lines of the events from `since` (included) to `until` (excluded), in milliseconds since 1970."""
    end = data.rfind(b"\n") + 1
    start = 0 if since is None else _first_since(data, since, end)
    return Span(start, end if until is None else max(start, _first_since(data, until, end)))


def _first_since(data: Data, time: int, end: int) -> int:
    """Bisect: lines that begin before `low` are earlier than `time`, lines from `high` on are not."""
    low, high = 0, end
    while low < high:
        line = _line_at(data, _line_start(data, (low + high) // 2))
        if line.event["timestamp"] < time:
            low = line.end
        else:
            high = line.start
    return low


def _line_start(data: Data, place: int) -> int:
    return data.rfind(b"\n", 0, place) + 1


def _line_at(data: Data, start: int) -> Line:
    end = data.find(b"\n", start) + 1
    return Line(start, end, json.loads(data[start:end]))


def check_place(data: Data, place: int) -> None:
    """Raises ServiceError where no line begins at `place`, which comes from a client's token."""
    if place != 0 and not (0 < place <= len(data) and data[place - 1 : place] == b"\n"):
        raise invalid_token()


def invalid(message: str) -> ServiceError:
    return ServiceError("InvalidParameterException", message)


def invalid_token() -> ServiceError:
    return invalid("The specified nextToken is invalid.")


def read_forward(data: Data, span: Span, limit: int) -> Page:
    """The first events of the span."""
    events: list[dict[str, Any]] = []
    place, left = span.start, MOST_BYTES
    while place < span.end and len(events) < limit:
        line = _line_at(data, place)
        left -= size(line.event)
        if events and left < 0:
            break
        events.append(line.event)
        place = line.end
    return Page(events, span.start, place)


def read_backward(data: Data, span: Span, limit: int) -> Page:
    """The last events of the span, in the order of the file."""
    events: list[dict[str, Any]] = []
    place, left = span.end, MOST_BYTES
    while place > span.start and len(events) < limit:
        line = _line_at(data, _line_start(data, place - 1))
        left -= size(line.event)
        if events and left < 0:
            break
        events.append(line.event)
        place = line.start
    return Page(events[::-1], place, span.end)


def lines(path: Path, span: Span, *, backward: bool = False) -> Iterator[Line]:
    """The lines of a span. The file is open only for a block at a time: a log group may have more streams than a
    process may open files."""
    block, largest = _BLOCKS
    start, end = span
    read = _last_lines if backward else _first_lines
    while start < end:
        try:
            found = read(path, start, end, block)
        except FileNotFoundError:
            return  # the job was deleted meanwhile
        if found and backward:
            end = found[-1].start
        elif found:
            start = found[-1].end
        block = min(2 * block, largest) if found else 2 * block
        yield from found


def _first_lines(path: Path, start: int, end: int, block: int) -> list[Line]:
    data = _read(path, start, min(block, end - start))
    return _split(data[: data.rfind(b"\n") + 1], start)


def _last_lines(path: Path, start: int, end: int, block: int) -> list[Line]:
    """The last line first."""
    begin = max(start, end - block)
    data = _read(path, begin, end - begin)
    skipped = 0 if begin == start else data.find(b"\n") + 1
    return _split(data[skipped:], begin + skipped)[::-1]


def _read(path: Path, start: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(count)


def _split(data: bytes, place: int) -> list[Line]:
    found = []
    for text in data.splitlines(keepends=True):
        found.append(Line(place, place + len(text), json.loads(text)))
        place += len(text)
    return found
