"""Writes the log stream of a simulated host, and gives each line its time. `services.logs.stream_file` reads it."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

_BACKLOG = 1024 * 1024  # bytes of lines that wait for space on the disk; later lines are dropped


class HostLog:
    """One log stream: a JSON object a line, each written in one piece, so that readers need no lock.

    Where the disk has space for only a part of a line, the rest is written with the next line. After `close` nothing is
    written. Timestamps never decrease, whatever the clock does: readers bisect by them.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._unwritten = bytearray()
        self._dropped = 0
        self._last_time = 0
        self._path = path
        self._folder = path.parent
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, message: str) -> None:
        with self._lock:
            if len(self._unwritten) >= _BACKLOG:
                self._dropped += 1
            else:
                if self._dropped:
                    self._append(f"{self._dropped} lines are left out: disk full in {self._folder}")
                    self._dropped = 0
                self._append(message)
            if self._descriptor is not None:
                with suppress(OSError):
                    del self._unwritten[: os.write(self._descriptor, self._unwritten)]

    def reopened(self) -> HostLog:
        """The same stream again, for lines after the host's end."""
        return HostLog(self._path)

    def _append(self, message: str) -> None:
        self._last_time = max(self._last_time, int(time.time() * 1000))
        self._unwritten += (json.dumps({"timestamp": self._last_time, "message": message}) + "\n").encode()

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
