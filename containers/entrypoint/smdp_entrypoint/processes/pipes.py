"""A pipe whose last write time the kernel records.

Two failures often begin within milliseconds, and on a busy host the loop may read both at once. A named pipe's
modification time is the time of its last write, with the resolution of the kernel's clock tick (1 to 10 ms); an
ordinary pipe has no modification time since Linux 6.15.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def open_dated_pipe() -> tuple[int, int]:
    """The reading and the writing end; those of an ordinary pipe if no named pipe can be created."""
    try:
        with tempfile.TemporaryDirectory(prefix="smdp-") as folder:
            path = Path(folder, "pipe")
            os.mkfifo(path, 0o600)
            reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return reading, os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return os.pipe()


class WriteTime:
    """The time of the last write to the pipe of `fd`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at_birth = os.fstat(fd).st_mtime

    def before(self, now: float) -> float:
        """Wall-clock seconds; `now` if the kernel records no time for this pipe."""
        at = os.fstat(self._fd).st_mtime
        return at if self._at_birth < at <= now else now
