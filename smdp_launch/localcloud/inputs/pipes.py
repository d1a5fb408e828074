"""Pipe mode: the objects of a channel, one after the other, through a new named pipe for each epoch.

The pipe of epoch N is NAME_N in /opt/ml/input/data. Its bytes end with the last object; the next pipe exists by then.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from smdp_launch.localcloud.inputs.counters import Counter
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import Object

_BLOCK = 1 << 16  # bytes; what a pipe holds
_TICK = 0.02  # seconds between two looks for a reader


class Pipe:
    """Writes one channel, in a thread of its own, for as long as the process lives.

    Args:
        folder: the host's input/data.
    """

    def __init__(
        self, name: str, folder: Path, objects: Iterable[Object], counter: Counter, throttle: Throttle | None
    ) -> None:
        self._name = name
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._objects = list(objects)
        self._counter = counter
        self._throttle = throttle

    def start(self) -> None:
        self._make(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        epoch = 0
        while True:
            pipe = self._wait_for_reader(epoch)
            epoch += 1
            try:
                self._make(epoch)
                with suppress(BrokenPipeError):  # the reader wants no more of this epoch
                    self._write(pipe)
            finally:
                os.close(pipe)

    def _make(self, epoch: int) -> None:
        with suppress(FileExistsError):
            os.mkfifo(f"{self._name}_{epoch}", 0o644, dir_fd=self._folder)

    def _wait_for_reader(self, epoch: int) -> int:
        """The write end of the epoch's pipe, once a process has opened it to read."""
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            try:
                pipe = os.open(f"{self._name}_{epoch}", flags, dir_fd=self._folder)
            except OSError as error:
                if error.errno not in (errno.ENXIO, errno.ENOENT, errno.ELOOP):
                    raise
            else:
                if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                    return pipe
                os.close(pipe)  # the script has put another file in its place
            time.sleep(_TICK)

    def _write(self, pipe: int) -> None:
        is_first = True
        for one in self._objects:
            with Path(one.file).open("rb", buffering=0) as file:
                while block := file.read(_BLOCK):
                    with self._counter.waiting():
                        self._wait(len(block), is_first=is_first)
                    self._send(pipe, block)
                    is_first = False
            is_first = True

    def _wait(self, amount: int, *, is_first: bool) -> None:
        if self._throttle is not None:
            time.sleep(max(0.0, self._throttle.due(amount, is_first=is_first) - time.monotonic()))

    def _send(self, pipe: int, block: bytes) -> None:
        view = memoryview(block)
        while view:
            try:
                sent = os.write(pipe, view)
            except BlockingIOError:
                select.select([], [pipe], [])
                continue
            view = view[sent:]
        self._counter.add(len(block))
