"""The bytes of objects: readers that moto gets instead of the bytes, and ranges of bytes for answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from smdp_launch.localcloud.errors import ServiceError

BLOCK = 1024 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


class Value(Protocol):
    """The methods of moto's file object with an object's bytes that moto and this package use."""

    def seek(self, offset: int, /) -> object: ...
    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


class NoValue:
    """An empty file, for moto's work on names and metadata."""

    def seek(self, offset: int, /) -> None:
        """Do nothing."""

    def read(self, size: int = -1, /) -> bytes:
        return b""

    def close(self) -> None:
        """Do nothing."""


class DiskValue:
    """Opens the file for each read, so that neither memory nor open files grow with the number of objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def seek(self, offset: int, /) -> None:
        self._position = offset

    def read(self, size: int = -1, /) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read(size)
        self._position += len(data)
        return data

    def close(self) -> None:
        """Do nothing: the file is not open between two calls."""


def blocks(value: Value) -> Iterator[bytes]:
    """All bytes of the value, in blocks."""
    value.seek(0)
    while block := value.read(BLOCK):
        yield block


def joined(values: Sequence[Value]) -> Iterator[bytes]:
    return (block for value in values for block in blocks(value))


@dataclass(frozen=True)
class Slice:
    """The bytes from `start` (included) to `end` (excluded) of an object with `size` bytes."""

    start: int
    end: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def cut(header: str, size: int) -> Slice | None:
    """The range in a Range header; None for the whole object and for a header of another form. Raises ServiceError."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    if start >= size or (last and first and int(last) < int(first)):
        raise ServiceError("InvalidRange", "The requested range is not satisfiable", 416)
    return Slice(start, end, size)


class SliceReader:
    """The body of an answer: reads the open file in blocks, and closes it with the answer."""

    def __init__(self, file: IO[bytes], part: Slice) -> None:
        self._file = file
        self._remaining = part.end - part.start
        file.seek(part.start)

    def __iter__(self) -> Iterator[bytes]:
        while self._remaining and (block := self._file.read(min(BLOCK, self._remaining))):
            self._remaining -= len(block)
            yield block

    def close(self) -> None:
        self._file.close()
