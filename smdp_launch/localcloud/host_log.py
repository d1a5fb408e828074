"""Writes the log stream of a simulated host, and gives each line its time. `services.logs.stream_file` reads it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BACKLOG = 1024 * 1024  # bytes of lines that wait for space on the disk; later lines are dropped


class HostLog:
    """One log stream: a JSON object a line, each written in one piece, so that readers need no lock.

    Where the disk has space for only a part of a line, the rest is written with the next line, by `close`, or when the
    log is reopened; so are lines that come after `close`. Timestamps never decrease, whatever the clock does: readers
    bisect by them.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._unwritten = bytearray()
        self._dropped = 0
        self._last_time = 0
        self._path = path
        self._descriptor: int | None = self._open()

    def write(self, message: str) -> None:
        with self._lock:
            if len(self._unwritten) >= _BACKLOG:
                self._dropped += 1
            else:
                self._report_dropped()
                self._append(message)
            self._flush()

    def close(self) -> None:
        with self._lock:
            self._flush()
            self._report_dropped()
            self._flush()
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @contextmanager
    def reopened(self) -> Iterator[None]:
        """A closed log accepts lines again in this context; an open one stays open. Raises OSError."""
        with self._lock:
            was_open = self._descriptor is not None
            if not was_open:
                self._descriptor = self._open()
            self._flush()
        try:
            yield
        finally:
            if not was_open:
                self.close()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _report_dropped(self) -> None:
        if self._dropped and len(self._unwritten) < _BACKLOG:
            self._append(f"{self._dropped} lines are left out: disk full in {self._path.parent}")
            self._dropped = 0

    def _flush(self) -> None:
        with suppress(OSError):
            while self._unwritten and self._descriptor is not None:
                del self._unwritten[: os.write(self._descriptor, self._unwritten)]

    def _append(self, message: str) -> None:
        self._last_time = max(self._last_time, int(time.time() * 1000))
        self._unwritten += (json.dumps({"timestamp": self._last_time, "message": message}) + "\n").encode()
