"""The records of a transform job's input: lines or binary records of an object, joined to payloads of a limited size.

Both binary formats are little-endian. A record of RecordIO is a magic number, a word with the length in its lower 29
bits and the kind of part above, and the bytes, filled up to a multiple of four. A record that contains the magic number
is stored as several parts, without it. A record of TFRecord is the length in 8 bytes, its checksum in 4, the bytes, and
their checksum in 4.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

_MAGIC = struct.pack("<I", 0xCED7230A)
_LENGTH = (1 << 29) - 1
_BLOCK = 1 << 20  # the length of a damaged record can be more than there is memory
_WHOLE, _LAST = 0, 3  # kinds of part: of these, the record has no further one


class RecordError(Exception):
    """The input cannot be split as the job requests."""


@dataclass(frozen=True)
class Split:
    """How an object becomes payloads.

    Args:
        by: SplitType of the request: None, Line, RecordIO or TFRecord. None: the whole object is the record.
        join: whether a payload has as many records as fit; otherwise one.
        most: bytes of a payload; 0 for no limit.
        gzipped: whether the object is compressed.
    """

    by: str
    join: bool
    most: int
    gzipped: bool


class _Record(NamedTuple):
    """A record with what surrounds it in the object, and without."""

    framed: bytes
    bare: bytes


def payloads(path: Path, split: Split) -> Iterator[bytes]:
    """The payloads of an object, in order. Raises RecordError."""
    try:
        with _opened(path, split.gzipped) as file:
            if split.by == "None":
                content = file.read()
                _check(content, split.most)
                if content:
                    yield content
                return
            records = {"Line": _lines, "RecordIO": _recordio, "TFRecord": _tfrecords}[split.by](file)
            yield from _joined(records, split.most) if split.join else _single(records, split.most)
    except (EOFError, gzip.BadGzipFile) as error:
        raise RecordError(f"it is not whole gzip data: {error}") from error


def _lines(file: IO[bytes]) -> Iterator[_Record]:
    for line in file:
        if line.strip():
            yield _Record(line, line.rstrip(b"\r\n"))


def _recordio(file: IO[bytes]) -> Iterator[_Record]:
    framed, parts = b"", list[bytes]()
    while head := file.read(8):
        if len(head) < 8 or head[:4] != _MAGIC:
            raise RecordError("it is not RecordIO data: a record does not start with the magic number")
        (word,) = struct.unpack("<I", head[4:])
        length = word & _LENGTH
        part = _read(file, length + -length % 4, "RecordIO")
        framed += head + part
        parts.append(part[:length])
        if word >> 29 in (_WHOLE, _LAST):
            yield _Record(framed, _MAGIC.join(parts))
            framed, parts = b"", []
    if parts:
        raise RecordError("it is not whole RecordIO data: the last record has no end")


def _tfrecords(file: IO[bytes]) -> Iterator[_Record]:
    while head := file.read(12):
        if len(head) < 12:
            raise RecordError("it is not whole TFRecord data: a record has no length")
        (length,) = struct.unpack("<Q", head[:8])
        rest = _read(file, length + 4, "TFRecord")
        yield _Record(head + rest, rest[:-4])


def _read(file: IO[bytes], length: int, title: str) -> bytes:
    found = bytearray()
    while len(found) < length and (block := file.read(min(length - len(found), _BLOCK))):
        found += block
    if len(found) < length:
        raise RecordError(f"it is not whole {title} data: of its last record, {len(found)} of {length} bytes exist")
    return bytes(found)


def _single(records: Iterator[_Record], most: int) -> Iterator[bytes]:
    for record in records:
        _check(record.bare, most)
        yield record.bare


def _joined(records: Iterator[_Record], most: int) -> Iterator[bytes]:
    waiting = bytearray()
    for record in records:
        _check(record.framed, most)
        if waiting and most and len(waiting) + len(record.framed) > most:
            yield bytes(waiting)
            waiting.clear()
        waiting += record.framed
    if waiting:
        yield bytes(waiting)


def _check(record: bytes, most: int) -> None:
    if most and len(record) > most:
        raise RecordError(f"a record has {len(record)} bytes, more than MaxPayloadInMB allows ({most} bytes)")


@contextmanager
def _opened(path: Path, gzipped: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if gzipped else raw
