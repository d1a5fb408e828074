"""How much a host has read from each of its channels, and the files that say so.

`STATUS` in /opt/ml/input is for the host, which can change it. A copy outside of the host's folders is for the local
cloud. Both are `{NAME: {"mode": ..., "bytes": ..., ...}}` with totals since the host started.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STATUS = ".smdp_channels.json"
_INTERVAL = 1.0  # seconds between two writes of the files


class Counter:
    """Of one channel. The threads of a server call it at the same time.

    `seconds`: how long at least one reader was waiting for bytes of the channel.
    """

    def __init__(self, mode: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._mode = mode
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._reads = 0
        self._waiting = 0
        self._since = 0.0
        self._seconds = 0.0

    def begin(self) -> None:
        """A reader waits."""
        with self._lock:
            if self._waiting == 0:
                self._since = self._clock()
            self._waiting += 1

    def end(self, amount: int | None) -> None:
        """A reader got `amount` bytes; None for an error."""
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self._seconds += self._clock() - self._since
            if amount is not None:
                self._bytes += amount
                self._reads += 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A reader waits, whose bytes are counted elsewhere."""
        self.begin()
        try:
            yield
        finally:
            self.end(None)

    def add(self, amount: int) -> None:
        with self._lock:
            self._bytes += amount
            self._reads += 1

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            running = self._clock() - self._since if self._waiting else 0.0
            seconds = round(self._seconds + running, 3)
            return {"mode": self._mode, "bytes": self._bytes, "reads": self._reads, "seconds": seconds}


class StatusFiles:
    """Writes the counters, at most once a second and only when they changed.

    Args:
        folders: in which the file is replaced. They are opened once: a script may replace its /opt/ml/input by a link.
        fixed: the channels that were copied before the start.
    """

    def __init__(self, folders: list[Path], fixed: Mapping[str, Any]) -> None:
        self.counters: dict[str, Counter] = {}
        self._fixed = dict(fixed)
        self._folders = [os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for one in folders]
        self._written: dict[str, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.write()
        self._thread.start()

    def close(self) -> None:
        """Write the last counters."""
        self._ended.set()
        self._thread.join()
        self.write()
        self.release()

    def release(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def write(self) -> None:
        counted = {name: one.to_json() for name, one in self.counters.items()}
        amounts = {name: int(one["bytes"]) for name, one in counted.items()}
        if amounts == self._written:
            return
        text = json.dumps({**self._fixed, **counted}).encode()
        for folder in self._folders:
            with suppress(OSError):  # the disk is full, or the script has removed the folder
                _replace(folder, text)
        self._written = amounts

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self.write()


def write_status(folders: list[Path], fixed: Mapping[str, Any]) -> None:
    """Write the file of a host all of whose channels were copied before the start."""
    files = StatusFiles(folders, fixed)
    files.write()
    files.release()


def _replace(folder: int, text: bytes) -> None:
    scratch = f"{STATUS}.new"
    with suppress(FileNotFoundError):
        os.unlink(scratch, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(scratch, flags, 0o644, dir_fd=folder), "wb") as file:
        file.write(text)
    os.rename(scratch, STATUS, src_dir_fd=folder, dst_dir_fd=folder)
