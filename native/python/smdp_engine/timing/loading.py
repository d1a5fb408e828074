"""The loader's own work: what fetching the batches costs in the processes that do it.

A fetch is measured in the process and thread where it runs: its time, its time on a CPU, its time in the queue for a
CPU, and the bytes that the process reads meanwhile. In the rank itself the numbers are added up. A worker process of
the loader sends its sums through a pipe of the rank, about five times a second. The pipe never blocks the worker: what
it does not accept is sent later.

Forked workers inherit the pipe. Spawned ones open it by its name in SMDP_TIMING_LOADER.
"""

import contextlib
import multiprocessing.util
import os
import struct
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .event_pipe import is_pipe

#: ``process:descriptor:device:inode`` of the pipe's writing end in the rank.
VARIABLE = "SMDP_TIMING_LOADER"
# Smaller than PIPE_BUF, so the records of several workers do not mix.
_RECORD = struct.Struct("<5q")
_READ_SIZE = 1000 * _RECORD.size
_FLUSH_NS = 200_000_000
_now = time.perf_counter_ns
_cpu = time.thread_time_ns


class Work(NamedTuple):
    """Sums over fetches; times in nanoseconds."""

    batches: int = 0
    wall: int = 0
    cpu: int = 0
    queued: int = 0
    bytes: int = 0

    def plus(self, other: "Work") -> "Work":
        return Work(*(one + another for one, another in zip(self, other)))


class _Start(NamedTuple):
    wall: int
    cpu: int
    queued: int
    bytes: int


class Counters:
    """What the system counts for this thread and process. A number that it does not count is 0."""

    def __init__(self) -> None:
        self._schedule = _open("/proc/thread-self/schedstat")
        self._io = _open("/proc/self/io")
        self._own_bytes = 0  # that this object has read
        self.has_queued = self._schedule >= 0 and self.queued() >= 0
        self.has_bytes = self._io >= 0 and self.bytes() >= 0

    def queued(self) -> int:
        """Nanoseconds that the thread could have run and had no CPU; -1 if unknown."""
        return self._number(self._schedule)

    def bytes(self) -> int:
        """Bytes that the process has read, without those that this object has read; -1 if unknown."""
        before = self._own_bytes
        count = self._number(self._io)
        return count - before if count >= 0 else -1

    def _number(self, fd: int) -> int:
        """The second word of the file: the run delay in ``schedstat``, and ``rchar`` in ``io``."""
        try:
            text = os.pread(fd, 256, 0)
            self._own_bytes += len(text)
            return int(text.split(None, 2)[1])
        except (OSError, ValueError, IndexError):
            return -1

    def start(self) -> _Start:
        queued = self.queued() if self.has_queued else 0
        count = self.bytes() if self.has_bytes else 0
        return _Start(_now(), _cpu(), queued, count)

    def since(self, start: _Start, batches: int) -> Work:
        cpu, wall = _cpu(), _now()
        queued = self.queued() if self.has_queued else 0
        count = self.bytes() if self.has_bytes else 0
        return Work(
            batches,
            wall - start.wall,
            cpu - start.cpu,
            max(0, queued - start.queued),
            max(0, count - start.bytes),
        )

    def close(self) -> None:
        for fd in (self._schedule, self._io):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)


class Loading:
    """Of a rank: adds up the fetches of this process and of the loader's workers. ``workers``: the number of worker
    processes of the training loader; None before its first batch."""

    def __init__(self) -> None:
        self.workers: Optional[int] = None
        self._work = Work()  # of this process
        self._sent = Work()  # of the workers
        self._local = threading.local()
        self._opened: List[Counters] = []
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        status = os.fstat(self._writing)
        os.environ[VARIABLE] = f"{os.getpid()}:{self._writing}:{status.st_dev}:{status.st_ino}"
        counters = self._counters()
        self._has_queued, self._has_bytes = counters.has_queued, counters.has_bytes

    def fetch(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call the function, which loads one batch, and measure it."""
        counters = self._counters()
        start = counters.start()
        batches = 0
        try:
            batch = function(*args)
            batches = 1
            return batch
        finally:
            self._work = self._work.plus(counters.since(start, batches))

    def read(self) -> Dict[str, int]:
        """The totals, as the event's fields name them, times in nanoseconds; without what the system does not count."""
        with contextlib.suppress(OSError):  # EAGAIN: no more; EBADF: the script has closed all files
            while True:
                data = os.read(self._reading, _READ_SIZE)
                for record in _RECORD.iter_unpack(data):
                    self._sent = self._sent.plus(Work(*record))
                if not data:
                    break
        work = self._work.plus(self._sent)
        fields = {"load_batches": work.batches, "load_s": work.wall, "load_cpu_s": work.cpu}
        if self._has_queued:
            fields["load_queued_s"] = work.queued
        if self._has_bytes:
            fields["load_bytes"] = work.bytes
        return fields

    def in_child(self) -> "Sender":
        """In a forked child: what measures the fetches there, if it is a worker of the loader."""
        for counters in self._opened:
            counters.close()
        os.close(self._reading)
        return Sender(self._writing)

    def _counters(self) -> Counters:
        counters: Optional[Counters] = getattr(self._local, "counters", None)
        if counters is None:
            counters = self._local.counters = Counters()
            self._opened.append(counters)
        return counters


class Sender:
    """Of a worker process of the loader: measures its fetches and sends their sums to the rank."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._counters: Optional[Counters] = None
        self._unsent = Work()
        self._sent_at = 0

    def fetch(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._counters is None:
            self._counters = Counters()
            # Not `atexit`: multiprocessing ends its processes without it.
            multiprocessing.util.Finalize(None, self._send, exitpriority=0)
        start = self._counters.start()
        batches = 0
        try:
            batch = function(*args)
            batches = 1
            return batch
        finally:
            self._unsent = self._unsent.plus(self._counters.since(start, batches))
            if _now() - self._sent_at > _FLUSH_NS:
                self._send()

    def _send(self) -> None:
        self._sent_at = _now()
        try:
            written = os.write(self._fd, _RECORD.pack(*self._unsent))
        except (OSError, struct.error):  # EAGAIN: the pipe is full; EPIPE: the rank has exited
            return
        if written:
            self._unsent = Work()


def rank_of_this_process() -> Optional[int]:
    """The process of the rank that measures and is an ancestor of this process, or is this one; None without one."""
    parts = os.environ.get(VARIABLE, "").split(":")
    return int(parts[0]) if len(parts) == 4 and parts[0].isdigit() else None


def sender_to_rank() -> Optional[Sender]:
    """In a spawned process: what measures its fetches; None if the rank's pipe cannot be opened."""
    parts = os.environ.get(VARIABLE, "").split(":")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    process, fd, device, inode = map(int, parts)
    try:
        own = os.open(f"/proc/{process}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if is_pipe(own, device, inode):
        return Sender(own)
    os.close(own)
    return None


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
