"""The bytes of objects, kept out of moto: what stands in their place there, and how they are cut into answers."""

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
    """What moto and we need of the file object in which moto keeps an object's bytes."""

    def seek(self, offset: int, /) -> object: ...
    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


class NoValue:
    """No bytes at all: shown to moto while it works on names and metadata only."""

    def seek(self, offset: int, /) -> None:
        """There is only one place to be."""

    def read(self, size: int = -1, /) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is open."""


class DiskValue:
    """Opens the file only to read it, so that neither memory nor descriptors grow with the number of objects."""

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
        """Nothing is open between two calls."""


def blocks(value: Value) -> Iterator[bytes]:
    """All bytes from the beginning."""
    value.seek(0)
    while block := value.read(BLOCK):
        yield block


def joined(values: Sequence[Value]) -> Iterator[bytes]:
    return (block for value in values for block in blocks(value))


@dataclass(frozen=True)
class Slice:
    """Bytes `start` up to, not including, `end` of an object of `size` bytes."""

    start: int
    end: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def cut(header: str, size: int) -> Slice | None:
    """What a Range header asks for; None for the whole object, which is also the answer to a header not understood."""
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
    """An answer's body: reads the open file block by block, and closes it with the answer."""

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
