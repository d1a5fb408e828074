"""Reads an untrusted file with limits on total bytes, time and the size of a single read."""

from __future__ import annotations

import io
import time
from typing import IO

from smdp_entrypoint.contract.errors import SourceError

_LONGEST_READ = 1024 * 1024
_BLOCK = 256 * 1024


class Metered(io.RawIOBase):
    """The file interface that `tarfile` needs. `limit` is in bytes of content; `seconds` counts from now. Every call
    beyond them raises SourceError."""

    def __init__(self, content: IO[bytes], limit: int, seconds: float) -> None:
        self._content = content
        self._limit = limit
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._position = 0
        self._last = b""
        self._is_pushed_back = False

    def read(self, size: int = -1) -> bytes:
        # Without this check a header that declares gigabytes would be read in one piece.
        if not 0 <= size <= _LONGEST_READ:
            raise SourceError(f"The source archive declares a header of {size} bytes.")
        self._check(self._position + size)
        pushed_back = self._last if self._is_pushed_back and size else b""
        self._is_pushed_back = self._is_pushed_back and not size
        block = pushed_back + self._content.read(size - len(pushed_back))
        self._position += len(block)
        self._last = block[-1:] or self._last
        return block

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Seek forward, by reading what is skipped, so that the limits apply to it; or back by one byte, which
        `tarfile` needs to check that a member is complete."""
        if whence == io.SEEK_CUR:
            position += self._position
        if position == self._position - 1 and not self._is_pushed_back:
            self._position = position
            self._is_pushed_back = True
        while self._position < position:
            if not self.read(min(_BLOCK, position - self._position)):
                break
        if self._position > position:
            raise SourceError("The source archive cannot be read sequentially.")
        return self._position

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise SourceError(f"The source archive unpacks to more than {self._limit} bytes, the limit for its size.")
        if time.monotonic() > self._end:
            raise SourceError(f"The source archive could not be unpacked within {self._seconds:g} s.")
