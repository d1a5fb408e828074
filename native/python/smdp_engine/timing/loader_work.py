"""The loader's own work: what fetching the batches costs in the processes that do it.

A fetch is measured in the process and thread where it runs: its time, its time on a CPU, its time in the queue for a
CPU, and the bytes that the process reads meanwhile. The system's counters are read about ten times a second, so that
short fetches cost little. In the rank itself the numbers are added up. A worker process of
the loader sends its sums through a pipe of the rank, about five times a second. The pipe never blocks the worker: what
it does not accept is sent later.

Forked workers inherit the pipe. Spawned ones open it by its name in SMDP_TIMING_LOADER.
"""

import contextlib
import multiprocessing
import multiprocessing.util
import os
import resource
import struct
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, cast

from .event_pipe import is_pipe
from .native import MODULE

#: ``process:descriptor:device:inode`` of the pipe's writing end in the rank.
VARIABLE = "SMDP_TIMING_LOADER"
# Smaller than PIPE_BUF, so the records of several workers do not mix.
_RECORD = struct.Struct("<5q")
_READ_SIZE = 1000 * _RECORD.size
_FLUSH_NS = 200_000_000
_SAMPLE_NS = 100_000_000
_LAST_READ = 8  # so many fetches that were read weigh most
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
        return Work(
            self.batches + other.batches,
            self.wall + other.wall,
            self.cpu + other.cpu,
            self.queued + other.queued,
            self.bytes + other.bytes,
        )


class Counts(NamedTuple):
    """The system's counters at one moment."""

    wall: int
    cpu: int
    queued: int
    bytes: int


class Counters:
    """What the system counts for this thread, and for this process or what else ``io`` names. A number that it does
    not count is 0."""

    def __init__(self, io: Optional[str] = "/proc/self/io") -> None:
        self._schedule = _open("/proc/thread-self/schedstat")
        self._io = _open(io) if io is not None else -1
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

    def read(self) -> Counts:
        queued = self.queued() if self.has_queued else 0
        count = self.bytes() if self.has_bytes else 0
        return Counts(_now(), _cpu(), queued, count)

    def read_with_faults(self) -> Tuple[int, int, int, int, int]:
        """As ``read``, and how often an access to a mapped file has waited for the storage in this thread."""
        if MODULE is None:
            return (*self.read(), resource.getrusage(resource.RUSAGE_THREAD).ru_majflt)
        wall, cpu, queued, count, length, faults = MODULE.thread_counts(self._schedule, self._io)
        count -= self._own_bytes
        self._own_bytes += length
        return wall, cpu, queued if self.has_queued else 0, count if self.has_bytes else 0, faults


#: The beginning of a fetch: the time, the time on a CPU, the time in the queue (None: not read for this fetch).
Start = Tuple[int, int, Optional[int]]


class Fetches:
    """The fetches of one thread.

    A read of the system's counter takes longer than all else here, so the queue is read for one fetch in each
    _SAMPLE_NS. In the others, the same part of the time off the CPU counts as in the last fetches that were read.
    """

    def __init__(self) -> None:
        #: Of all fetches until now.
        self.work: Tuple[int, ...] = Work()
        self._counters = Counters(io=None)
        self.has_queued = self._counters.has_queued
        self._due = 0
        self._queued = self._off_cpu = 0  # of the last fetches that were read

    def begin(self) -> Start:
        wall = _now()
        queued = None
        if wall >= self._due and self.has_queued:
            self._due = wall + _SAMPLE_NS
            queued = self._counters.queued()
            wall = _now()
        return wall, _cpu(), queued

    def end(self, start: Start, batches: int) -> int:
        """The fetch has loaded so many batches. Returns the time."""
        wall_before, cpu_before, queued_before = start
        cpu, now = _cpu() - cpu_before, _now()
        wall = now - wall_before
        off_cpu = max(0, wall - cpu)
        if queued_before is None:
            queued = off_cpu * self._queued // self._off_cpu if self._off_cpu else 0
        else:
            queued = max(0, self._counters.queued() - queued_before)
            self._queued += queued - self._queued // _LAST_READ
            self._off_cpu += off_cpu - self._off_cpu // _LAST_READ
        done = self.work
        # All at once: another thread may read it.
        self.work = (done[0] + batches, done[1] + wall, done[2] + cpu, done[3] + min(queued, off_cpu), 0)
        return now

    def take(self) -> Work:
        """The work since the last call."""
        work = Work(*self.work)
        self.work = Work()
        return work

    def around(self, bytes_read: "BytesRead", fetch: Any, otherwise: Any) -> Any:
        """``fetch``, measured. A call in another thread, or after ``stop``, is one of ``otherwise``, which finds the
        fetches of its thread itself. Only the native fetches measure any call here."""
        return otherwise

    def stop(self) -> None:
        """In a forked child: ``around`` measures nothing from here on."""


if MODULE is not None:

    class NativeFetches(MODULE.Fetches):  # type: ignore[misc, name-defined]
        """As Fetches, in native code."""

        __slots__ = ()

        def take(self) -> Work:
            return Work(*super().take())


def new_fetches() -> Fetches:
    """Those of this thread: the native ones if they are there."""
    if MODULE is None:
        return Fetches()
    queue = _open("/proc/thread-self/schedstat")
    return cast(Fetches, NativeFetches(queue, _SAMPLE_NS, _LAST_READ))


_Counting: Any = object if MODULE is None else MODULE.Counting  # with ``is_counting`` and ``until``


class BytesRead(_Counting):  # type: ignore[misc]
    """What this process reads in its fetches.

    The system's counter is read at the beginning and at the end of a fetch, if the one before began _SAMPLE_NS earlier.
    Else all that the process reads counts, until a fetch ends _SAMPLE_NS later.
    """

    def __init__(self) -> None:
        self._counters = Counters()
        self.is_known = self._counters.has_bytes
        self._lock = threading.Lock()
        self._total = 0
        self.is_counting = not self.is_known
        self._before = 0
        self._began = 0
        #: The time before which no fetch ends the count.
        self.until = 0

    def begin(self) -> None:
        """A fetch begins, in any thread, and ``is_counting`` is false."""
        with self._lock:
            if not self.is_counting:
                now = _now()
                self.until = now if now - self._began >= _SAMPLE_NS else now + _SAMPLE_NS
                self._began = now
                self._before = self._counters.bytes()
                self.is_counting = True

    def end(self) -> None:
        """A fetch ends, in any thread, and ``until`` has passed."""
        if not self.is_known:
            return
        with self._lock:
            self._count()
            self.is_counting = False

    def total(self) -> int:
        with self._lock:
            self._count()
            return self._total

    def _count(self) -> None:
        if self.is_counting and self.is_known:
            now = self._counters.bytes()
            if now > self._before >= 0:
                self._total += now - self._before
            self._before = now


class Loading:
    """Of a rank: adds up the fetches of this process and of the loader's workers."""

    is_sender = False

    def __init__(self) -> None:
        self._work = Work()  # without a fetch
        self._sent = Work()  # of the workers
        #: ``fetches``: those of the thread.
        self._local = threading.local()
        self._all_fetches: List[Fetches] = []  # of this process's threads
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        status = os.fstat(self._writing)
        self._identity = status.st_dev, status.st_ino
        os.environ[VARIABLE] = f"{os.getpid()}:{self._writing}:{status.st_dev}:{status.st_ino}"
        self._has_queued = self.fetches_here().has_queued
        self.bytes_read = BytesRead()

    def add(self, work: Work) -> None:
        """Add work that this process did without a fetch."""
        self._work = self._work.plus(work)

    def read(self) -> Dict[str, int]:
        """The totals, as the event's fields name them, times in nanoseconds; without what the system does not count."""
        # A script may close all files, and another one may have the number of the pipe then.
        with contextlib.suppress(BlockingIOError):
            while is_pipe(self._reading, *self._identity):
                for record in _RECORD.iter_unpack(os.read(self._reading, _READ_SIZE)):
                    self._sent = self._sent.plus(Work(*record))
        work = self._work.plus(self._sent)
        for fetches in self._all_fetches:
            work = work.plus(Work(*fetches.work))
        fields = {"load_batches": work.batches, "load_s": work.wall, "load_cpu_s": work.cpu}
        if self._has_queued:
            fields["load_queued_s"] = work.queued
        if self.bytes_read.is_known:
            fields["load_bytes"] = work.bytes + self.bytes_read.total()
        return fields

    def fetches_here(self) -> Fetches:
        """Those of this thread."""
        fetches: Optional[Fetches] = getattr(self._local, "fetches", None)
        if fetches is None:
            fetches = self._local.fetches = new_fetches()
            self._all_fetches.append(fetches)
        return fetches

    def begin(self) -> Start:
        """A fetch begins in this thread."""
        if not self.bytes_read.is_counting:
            self.bytes_read.begin()
        return self.fetches_here().begin()

    def end(self, start: Start, batches: int) -> None:
        if self.fetches_here().end(start, batches) >= self.bytes_read.until:
            self.bytes_read.end()

    def in_child(self) -> "Sender":
        """In a forked child: what measures the fetches there, if it is a worker of the loader."""
        for fetches in self._all_fetches:
            fetches.stop()
        if is_pipe(self._reading, *self._identity):
            os.close(self._reading)
        return Sender(self._writing, *self._identity)


class Sender:
    """Of a worker process of the loader: measures its fetches and sends their sums to the rank."""

    is_sender = True

    def __init__(self, fd: int, device: int, inode: int) -> None:
        self._pipe = fd, device, inode
        self._is_child_of_rank: Optional[bool] = None
        self._fetches: Optional[Fetches] = None
        self._process: Optional[Counters] = None
        self._bytes = 0  # that the process had read when it last sent
        self._unsent = Work()
        self._sent_at = 0

    @property
    def is_child_of_rank(self) -> bool:
        """Whether the rank has started this process; else another process of the script has, such as an evaluation."""
        if self._is_child_of_rank is None:  # multiprocessing knows it after the import of torch
            self._is_child_of_rank = _parent() == rank_of_this_process()
        return self._is_child_of_rank

    def begin(self) -> Start:
        if self._fetches is None:
            # The process does nothing but load, so what it reads is counted as often as it is sent.
            self._fetches, self._process = new_fetches(), Counters()
            self._bytes = self._process.bytes()
            # Not `atexit`: multiprocessing ends its processes without it.
            multiprocessing.util.Finalize(None, self._send, exitpriority=0)
        return self._fetches.begin()

    def end(self, start: Start, batches: int) -> None:
        assert self._fetches is not None  # noqa: S101 (begin was called)
        if self._fetches.end(start, batches) - self._sent_at > _FLUSH_NS:
            self._send()

    def _send(self) -> None:
        self._sent_at = _now()
        if self._fetches is not None:
            self._unsent = self._unsent.plus(self._fetches.take())
        if self._process is not None and self._process.has_bytes:
            count = self._process.bytes()
            self._unsent = self._unsent._replace(bytes=self._unsent.bytes + max(0, count - self._bytes))
            self._bytes = count
        if not is_pipe(*self._pipe):
            return
        with contextlib.suppress(OSError):  # EAGAIN: the pipe is full; EPIPE: the rank has exited
            os.write(self._pipe[0], _RECORD.pack(*self._unsent))
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
        return Sender(own, device, inode)
    os.close(own)
    return None


def _parent() -> Optional[int]:
    """The process that has started this one with multiprocessing, also through a fork server; else the parent."""
    parent = multiprocessing.parent_process()
    return parent.pid if parent is not None else os.getppid()


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
