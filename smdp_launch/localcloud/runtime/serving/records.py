"""The records of a transform job's input: lines of an object, joined to payloads of a limited size."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast


class RecordError(Exception):
    """The input cannot be split as the job requests."""


@dataclass(frozen=True)
class Split:
    """How an object becomes payloads.

    Args:
        lines: whether each line is a record; otherwise the whole object is.
        join: whether a payload has as many records as fit; otherwise one.
        most: bytes of a payload; 0 for no limit.
        gzipped: whether the object is compressed.
    """

    lines: bool
    join: bool
    most: int
    gzipped: bool


def payloads(path: Path, split: Split) -> Iterator[bytes]:
    """The payloads of an object, in order. Raises RecordError."""
    try:
        with _opened(path, split.gzipped) as file:
            if split.lines:
                yield from _joined(file, split)
                return
            content = file.read()
            _check(content, split.most)
            if content:
                yield content
    except (EOFError, gzip.BadGzipFile) as error:
        raise RecordError(f"it is not whole gzip data: {error}") from error


def _joined(file: IO[bytes], split: Split) -> Iterator[bytes]:
    waiting = bytearray()
    for line in file:
        if not line.strip():
            continue
        if not split.join:
            record = line.rstrip(b"\r\n")
            _check(record, split.most)
            yield record
            continue
        _check(line, split.most)
        if waiting and split.most and len(waiting) + len(line) > split.most:
            yield bytes(waiting)
            waiting.clear()
        waiting += line
    if waiting:
        yield bytes(waiting)


def _check(record: bytes, most: int) -> None:
    if most and len(record) > most:
        raise RecordError(f"a record has {len(record)} bytes, more than MaxPayloadInMB allows ({most} bytes)")


@contextmanager
def _opened(path: Path, gzipped: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if gzipped else raw
