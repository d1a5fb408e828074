"""A pipe whose last write the kernel dates.

Which of two failures began first is often a matter of milliseconds, and on a host whose cores are all busy training
the loop may come to read both at once. A named pipe's modification time tells when it was written to, in steps of the
kernel's clock tick (1 to 10 ms); an ordinary pipe has none since Linux 6.15.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def open_dated_pipe() -> tuple[int, int]:
    """Reading and writing end. An ordinary pipe where there is no place for a named one."""
    try:
        with tempfile.TemporaryDirectory(prefix="smdp-") as folder:
            path = Path(folder, "pipe")
            os.mkfifo(path, 0o600)
            reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return reading, os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return os.pipe()


class WriteTime:
    """Tells when the pipe behind `fd` was last written to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at_birth = os.fstat(fd).st_mtime

    def before(self, now: float) -> float:
        """Wall-clock seconds; `now` where the kernel keeps no time for this pipe."""
        at = os.fstat(self._fd).st_mtime
        return at if self._at_birth < at <= now else now
