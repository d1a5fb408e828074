"""Reads the small files in which the kernel reports its counters."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CHUNK = 1 << 16
# The largest of these files, /proc/stat on a machine with hundreds of cores, has some 100 KB.
_LONGEST = 1 << 22

#: A counter that is missing or has another form on this system.
UNREADABLE = (OSError, ValueError, LookupError, ArithmeticError)


class SystemFiles:
    """Files below one root, which is / except in tests."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root = str(root).rstrip("/")

    def read(self, path: str) -> str:
        """The text of a file, of at most 4 MiB. Raises OSError.

        Never waits for another process, as `open` does for a named pipe without a writer.
        """
        # Hundreds of files are read in each sample, and Python's `open` takes four times as long.
        fd = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            chunks = [os.read(fd, _CHUNK)]
            while chunks[-1] and len(chunks) * _CHUNK < _LONGEST:
                chunks.append(os.read(fd, _CHUNK))
        finally:
            os.close(fd)
        return b"".join(chunks).decode("utf-8", "replace")

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; none if it cannot be read."""
        with contextlib.suppress(OSError):
            return sorted(os.listdir(self._root + path))  # noqa: PTH208 (/proc is listed in each sample)
        return []
