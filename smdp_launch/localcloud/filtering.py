"""FilterLogEvents: the events of many streams in order of time, those that a pattern fits."""

from __future__ import annotations

import base64
import heapq
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from smdp_launch.localcloud.errors import ServiceError

_MOST_BYTES = 1024 * 1024  # the service's limit of a page

_TERM = re.compile(r'([?-]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))(?:\s+|$)')
_ESCAPED = re.compile(r"\\(.)")

Places = dict[str, int]  # byte of each stream's file that is to be read next


def pattern(text: str) -> Callable[[str], bool]:
    """What CloudWatch calls an unstructured pattern: all terms, any of the `?terms`, none of the `-terms`, or
    `%expression%`.

    Raises ServiceError for patterns of JSON and of columns.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        raise _refused("The local cloud does not have patterns of JSON or of columns.")
    if len(text) > 1 and text[0] == text[-1] == "%":
        return _expression(text[1:-1])
    terms = _terms(text)
    some, none, every = ([word for sign, word in terms if sign == kind] for kind in ("?", "-", ""))

    def fits(message: str) -> bool:
        wanted = all(one in message for one in every) and (not some or any(one in message for one in some))
        return wanted and not any(one in message for one in none)

    return fits


def _terms(text: str) -> list[tuple[str, str]]:
    """Sign and word of each. Double quotes alone hold words together: an apostrophe is a letter like any other."""
    terms, place = [], 0
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None:
            raise _refused(f"Invalid filter pattern: {text[place:]!r} is no term; a quote may be open.")
        sign, quoted, word = match.groups()
        terms.append((sign, word if quoted is None else _ESCAPED.sub(r"\1", quoted)))
        place = match.end()
    return terms


def _expression(text: str) -> Callable[[str], bool]:
    try:
        expression = re.compile(text)
    except re.error as error:
        raise _refused(f"Invalid filter pattern: {error}") from None
    return lambda message: expression.search(message) is not None


def page(
    streams: Mapping[str, Path], token: str | None, limit: int, wanted: Callable[[Mapping[str, Any]], bool]
) -> tuple[list[dict[str, Any]], str | None]:
    """Events that are wanted, and the token of the next page where there may be more."""
    places = _places(token)
    events: list[dict[str, Any]] = []
    size = 0
    readers = [_events(name, path, places.get(name, 0)) for name, path in sorted(streams.items())]
    for _, name, place, after, event in heapq.merge(*readers, key=lambda one: one[:3]):
        if len(events) == limit or size >= _MOST_BYTES:
            return events, _token(places)
        places[name] = after
        if wanted(event):
            size += len(event["message"])
            events.append(
                {
                    "logStreamName": name,
                    **event,
                    "ingestionTime": event["timestamp"],
                    "eventId": f"{zlib.crc32(name.encode()):010d}{place:018d}",
                }
            )
    return events, None


def _events(name: str, path: Path, place: int) -> Iterator[tuple[int, str, int, int, dict[str, Any]]]:
    """Time, stream, first byte, byte behind it, and the event."""
    with path.open("rb") as file:
        _seek_line(file, place)
        for line in file:
            if not line.endswith(b"\n"):  # still on its way to the disk
                return
            event = json.loads(line)
            yield event["timestamp"], name, place, place + len(line), event
            place += len(line)


def _seek_line(file: IO[bytes], place: int) -> None:
    """Raises ServiceError where no line begins at `place`, which a client's token named."""
    if place == 0:
        return
    if place <= os.fstat(file.fileno()).st_size:
        file.seek(place - 1)
        if file.read(1) == b"\n":
            return
    raise _refused("The specified nextToken is invalid.")


def _token(places: Places) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(places).encode())).decode()


def _places(token: str | None) -> Places:
    if token is None:
        return {}
    try:
        found = json.loads(zlib.decompressobj().decompress(base64.urlsafe_b64decode(token), _MOST_BYTES))
    except (ValueError, RecursionError, zlib.error):
        raise _refused("The specified nextToken is invalid.") from None
    if not isinstance(found, dict) or not all(isinstance(one, int) and one >= 0 for one in found.values()):
        raise _refused("The specified nextToken is invalid.")
    return found


def _refused(message: str) -> ServiceError:
    return ServiceError("InvalidParameterException", message)
