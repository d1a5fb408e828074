"""FilterLogEvents: the events of many streams that match a pattern, in the order of their times."""

from __future__ import annotations

import base64
import heapq
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.services.logs.stream_file import (
    MOST_BYTES,
    Line,
    Span,
    check_place,
    in_range,
    invalid,
    invalid_token,
    lines,
    mapped,
    size,
)

_TERM = re.compile(r'([?-]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))(?:\s+|$)')
_ESCAPED = re.compile(r"\\(.)")

Places = dict[str, int]  # byte of each stream's file at which its next line begins or, backward, ends
_FORWARD, _BACKWARD = "f/", "b/"  # the beginnings of tokens


def pattern(text: str) -> Callable[[str], bool]:
    """A test for messages by what CloudWatch calls an unstructured pattern.

    The pattern is either `%expression%`, or terms: all `terms`, any of the `?terms`, none of the `-terms`.

    Raises ServiceError for patterns of JSON and of columns.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        raise invalid("The local cloud does not support patterns of JSON or of columns.")
    if len(text) > 1 and text[0] == text[-1] == "%":
        return _expression(text[1:-1])
    terms = _terms(text)
    some, none, every = ([word for sign, word in terms if sign == kind] for kind in ("?", "-", ""))

    def matches(message: str) -> bool:
        included = all(one in message for one in every) and (not some or any(one in message for one in some))
        return included and not any(one in message for one in none)

    return matches


def _terms(text: str) -> list[tuple[str, str]]:
    """Sign and text of each term. Only double quotes join words; an apostrophe is an ordinary character."""
    terms, place = [], 0
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None:
            raise invalid(f"Invalid filter pattern: {text[place:]!r} is not a term; a closing quote may be missing.")
        sign, quoted, word = match.groups()
        terms.append((sign, word if quoted is None else _ESCAPED.sub(r"\1", quoted)))
        place = match.end()
    return terms


def _expression(text: str) -> Callable[[str], bool]:
    try:
        expression = re.compile(text)
    except re.error as error:
        raise invalid(f"Invalid filter pattern: {error}") from None
    return lambda message: expression.search(message) is not None


@dataclass(frozen=True)
class Search:
    """The search of a request. `since` (included) and `until` (excluded) are milliseconds since 1970."""

    streams: Mapping[str, Path]
    since: int | None
    until: int | None
    matches: Callable[[str], bool]
    backward: bool = False


def page(search: Search, token: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """The next events, and the token of the next page unless these events are the last.

    The direction in a token overrides that of the request.
    """
    backward = search.backward if token is None else token.startswith(_BACKWARD)
    places = {} if token is None else _places(token)
    readers = [
        _events(name, path, _rest(path, search, places.get(name), backward), backward)
        for name, path in sorted(search.streams.items())
    ]
    events: list[dict[str, Any]] = []
    left = MOST_BYTES
    for _, name, line in heapq.merge(*readers, key=lambda one: (one[0], one[1], one[2].start), reverse=backward):
        if search.matches(line.event["message"]):
            left -= size(line.event)
            if events and (len(events) == limit or left < 0):
                return events, _token(places, backward)
            events.append(_described(name, line))
        places[name] = line.start if backward else line.end
    return events, None


def _rest(path: Path, search: Search, place: int | None, backward: bool) -> Span:
    """The part of a stream that is still to be read."""
    with mapped(path) as data:
        start, end = in_range(data, search.since, search.until)
        if place is None:
            return Span(start, end)
        check_place(data, place)
    return Span(start, min(end, place)) if backward else Span(max(start, place), end)


def _events(name: str, path: Path, span: Span, backward: bool) -> Iterator[tuple[int, str, Line]]:
    for line in lines(path, span, backward=backward):
        yield line.event["timestamp"], name, line


def _described(name: str, line: Line) -> dict[str, Any]:
    return {
        "logStreamName": name,
        **line.event,
        "ingestionTime": line.event["timestamp"],
        "eventId": f"{zlib.crc32(name.encode()):010d}{line.start:018d}",
    }


def _token(places: Places, backward: bool) -> str:
    packed = base64.urlsafe_b64encode(zlib.compress(json.dumps(places).encode())).decode()
    return f"{_BACKWARD if backward else _FORWARD}{packed}"


def _places(token: str) -> Places:
    if not token.startswith((_FORWARD, _BACKWARD)):
        raise invalid_token()
    try:
        packed = base64.urlsafe_b64decode(token[len(_FORWARD) :])
        places = json.loads(zlib.decompressobj().decompress(packed, MOST_BYTES))
    except (ValueError, RecursionError, zlib.error):
        raise invalid_token() from None
    if not isinstance(places, dict) or not all(isinstance(one, int) and one >= 0 for one in places.values()):
        raise invalid_token()
    return places
