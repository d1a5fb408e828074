"""Serves one channel as a read-only file system, over the descriptor of /dev/fuse that it is mounted with.

Threads of the server take requests from the descriptor and answer at once. Bytes that the throttle holds back wait in
a queue, which one more thread empties: no reader waits for the latency of another.

A request that no kernel sends gets an error or no answer; the server continues.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from smdp_launch.localcloud.inputs import wire
from smdp_launch.localcloud.inputs.counters import Counter
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import Item, Tree
from smdp_launch.localcloud.inputs.wire import Malformed, Op, Request

_THREADS = 4
_REMEMBERED = 1024  # interrupts of requests that another thread is just taking
_CAPABILITIES = wire.ASYNC_READ | wire.PARALLEL_DIROPS | wire.MAX_PAGES | wire.CACHE_SYMLINKS


class _File:
    """An open file. Its descriptor is closed with its last user: a read may still run when the kernel releases it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._was_read = False
        self._lock = threading.Lock()

    def __del__(self) -> None:
        os.close(self._descriptor)

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def is_first_read(self) -> bool:
        """True once."""
        with self._lock:
            was_read, self._was_read = self._was_read, True
        return not was_read


class _Queue:
    """Answers that are due later."""

    def __init__(self, deliver: Callable[[int, bytes], None], drop: Callable[[int], None]) -> None:
        self._deliver = deliver
        self._drop = drop
        self._changed = threading.Condition()
        self._order: list[tuple[float, int, int]] = []
        self._numbers = itertools.count()
        self._waiting: dict[int, bytes] = {}
        self._interrupted: dict[int, None] = {}

    def put(self, due: float, unique: int, data: bytes) -> None:
        with self._changed:
            if unique not in self._interrupted:
                self._waiting[unique] = data
                heapq.heappush(self._order, (due, next(self._numbers), unique))
                self._changed.notify()
                return
            del self._interrupted[unique]
        self._drop(unique)

    def interrupt(self, unique: int) -> None:
        """The reader has received a signal, and waits no longer."""
        with self._changed:
            if self._waiting.pop(unique, None) is None:
                self._interrupted[unique] = None
                if len(self._interrupted) > _REMEMBERED:
                    del self._interrupted[next(iter(self._interrupted))]
                return
        self._drop(unique)

    def run(self) -> None:
        """Deliver for as long as the process lives."""
        while True:
            with self._changed:
                while not self._order or self._order[0][0] > time.monotonic():
                    self._changed.wait(self._order[0][0] - time.monotonic() if self._order else None)
                unique = heapq.heappop(self._order)[2]
                data = self._waiting.pop(unique, None)
            if data is not None:
                self._deliver(unique, data)


class FileSystem:
    """Args:
    descriptor: of /dev/fuse; in a test, of a socket that keeps messages apart.
    """

    def __init__(self, descriptor: int, tree: Tree, counter: Counter, throttle: Throttle | None = None) -> None:
        self._descriptor = descriptor
        self._tree = tree
        self._counter = counter
        self._throttle = throttle
        self._queue = _Queue(self._send_bytes, self._send_interrupted)
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._files: dict[int, _File] = {}
        self._folders: dict[int, list[Item]] = {}
        self._actions: dict[int, Callable[[Request], bytes]] = {
            Op.INIT: self._init,
            Op.LOOKUP: lambda one: self._entry(one.node, one.name()),
            Op.GETATTR: lambda one: wire.attributes_answer(tree.attributes(one.node), tree.valid),
            Op.READLINK: lambda one: tree.target(one.node),
            Op.OPEN: self._open,
            Op.RELEASE: lambda one: self._forget_handle(one.number()),
            Op.OPENDIR: self._open_folder,
            Op.READDIR: lambda one: self._list(one, with_attributes=False),
            Op.READDIRPLUS: lambda one: self._list(one, with_attributes=True),
            Op.RELEASEDIR: lambda one: self._forget_handle(one.number()),
            Op.STATFS: lambda _: wire.statfs_answer(*tree.total()),
            Op.ACCESS: self._access,
            Op.DESTROY: lambda _: b"",
        }

    def start(self) -> None:
        """Serve in threads, which end when the file system is no longer mounted."""
        for target in [self._serve] * _THREADS + ([self._queue.run] if self._throttle is not None else []):
            threading.Thread(target=target, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                message = os.read(self._descriptor, wire.LONGEST_REQUEST)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EAGAIN):  # the reader was interrupted before
                    continue
                return  # ENODEV: no longer mounted
            if not message:
                return
            with suppress(Malformed):
                self.handle(Request.parse(message))

    def handle(self, request: Request) -> None:
        """Answer one request."""
        try:
            if request.op in wire.UNANSWERED:
                self._note(request)
            elif request.op == Op.READ:
                self._read(request)
            elif request.op in wire.WRITES:
                self._send(request.unique, errno.EROFS)
            elif request.op in self._actions:
                self._send(request.unique, 0, self._actions[request.op](request))
            else:
                self._send(request.unique, errno.ENOSYS)
        except OSError as error:
            self._send(request.unique, error.errno or errno.EIO)
        except (Malformed, ValueError):
            self._send(request.unique, errno.EINVAL)

    def _note(self, request: Request) -> None:
        with suppress(Malformed):
            if request.op == Op.INTERRUPT:
                self._queue.interrupt(request.number())
            elif request.op == Op.FORGET:
                self._tree.forget(request.node, request.number())
            else:
                for node, lookups in request.forgotten():
                    self._tree.forget(node, lookups)

    def _init(self, request: Request) -> bytes:
        major, minor, read_ahead, offered = request.init()
        if major != wire.MAJOR:  # a later kernel then repeats INIT with this version
            return wire.init_answer(wire.MINOR, read_ahead, 0)
        wanted = _CAPABILITIES
        wanted |= wire.AUTO_INVAL_DATA if self._tree.keeps else wire.DO_READDIRPLUS | wire.READDIRPLUS_AUTO
        return wire.init_answer(minor, read_ahead, offered & wanted)

    def _entry(self, folder: int, name: bytes) -> bytes:
        return wire.entry(self._tree.lookup(folder, name), self._tree.valid)

    def _open(self, request: Request) -> bytes:
        if request.flags() & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        file = _File(self._tree.open_file(request.node))
        with self._lock:
            handle = next(self._handles)
            self._files[handle] = file
        return wire.open_answer(handle, wire.OPEN_KEEP_CACHE if self._tree.keeps else 0)

    def _open_folder(self, request: Request) -> bytes:
        items = self._tree.items(request.node)
        with self._lock:
            handle = next(self._handles)
            self._folders[handle] = items
        return wire.open_answer(handle, 0 if self._tree.keeps else wire.OPEN_KEEP_CACHE | wire.OPEN_CACHE_DIR)

    def _forget_handle(self, handle: int) -> bytes:
        with self._lock:
            self._files.pop(handle, None)
            self._folders.pop(handle, None)
        return b""

    def _list(self, request: Request, *, with_attributes: bool) -> bytes:
        handle, offset, size = request.read()
        with self._lock:
            items = self._folders.get(handle)
        if items is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        answer = bytearray()
        for number in range(offset, len(items)):
            one = items[number]
            packed = wire.directory_entry(one.inode, number + 1, one.kind >> 12, one.name)
            if with_attributes:
                attributes = one.attributes or self._tree.lookup(request.node, one.name)
                packed = wire.entry(attributes, self._tree.valid) + packed
            if len(answer) + len(packed) > size:
                break
            answer += packed
        return bytes(answer)

    def _access(self, request: Request) -> bytes:
        if request.flags() & os.W_OK:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        self._tree.attributes(request.node)
        return b""

    def _read(self, request: Request) -> None:
        handle, offset, size = request.read()
        with self._lock:
            file = self._files.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._counter.begin()
        try:
            data = file.read(size, offset)
        except OSError:
            self._counter.end(None)
            raise
        if self._throttle is None:
            self._send_bytes(request.unique, data)
        else:
            due = self._throttle.due(len(data), is_first=file.is_first_read())
            self._queue.put(due, request.unique, data)

    def _send_bytes(self, unique: int, data: bytes) -> None:
        self._counter.end(len(data))  # before the reader has them: it may read the counters next
        self._send(unique, 0, data)

    def _send_interrupted(self, unique: int) -> None:
        self._send(unique, errno.EINTR)
        self._counter.end(None)

    def _send(self, unique: int, error: int, data: bytes = b"") -> None:
        with suppress(OSError):  # the request was interrupted, or the file system is no longer mounted
            os.writev(self._descriptor, [wire.answer(unique, error, len(data)), data])
