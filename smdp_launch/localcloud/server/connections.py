"""The server's connections: one thread reads requests, and a fixed number of other threads answer complete ones.

A client that sends half a request therefore occupies a connection, not a thread. The number of connections is limited
too: at the limit, the connection that has waited longest is closed for each new one. An answered connection is read
until the client closes it: closing a socket with unread bytes would discard the answer.

Only the reading thread uses the selector and the list of connections. A connection belongs either to it or to the
thread that answers, and passes from one to the other through a queue.
"""

from __future__ import annotations

import io
import queue
import re
import resource
import selectors
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

_THREADS = 32
_MOST_LONG_THREADS = 256  # started when they are needed
_MOST_CONNECTIONS = 2048
_TIMEOUT = 30.0  # seconds for a request to arrive, and for a client to close an answered connection
#: Bytes of a head, and of a head with the body that the reading thread waits for. The answering thread reads longer
#: bodies.
_LONGEST = 64 * 1024
_ACCEPT_BATCH = 64  # connections that are accepted before others are read
_READ = 64 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_EXPECT = re.compile(rb"^expect:", re.IGNORECASE | re.MULTILINE)
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(eq=False)
class Connection:
    """`received`: the part of the request that has been read. `whole`: the bytes to wait for, once the head is
    complete. `is_long`: whether the answer may take minutes."""

    socket: socket.socket
    address: tuple[str, int]
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    whole: int | None = None
    is_answered: bool = False
    is_long: bool = False


class Incoming(io.RawIOBase):
    """The request for the answering thread: the bytes already received, then those that the socket still receives."""

    def __init__(self, connection: Connection) -> None:
        self._received = memoryview(bytes(connection.received))
        self._socket = connection.socket
        self._is_over = False

    def readable(self) -> bool:
        return True

    def end(self) -> None:
        """Read no more of the request: the answer is known."""
        self._is_over = True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._is_over:
            return 0
        if not self._received:
            return self._socket.recv_into(buffer)
        part = self._received[: len(buffer)]
        buffer[: len(part)] = part
        self._received = self._received[len(part) :]
        return len(part)


class Connections:
    """The connections of one listening socket. The answering threads call `answer`, with a blocking socket.

    Args:
        long_path: the beginning of the paths whose requests may take minutes, since they wait for a user's program.
            They have threads of their own, so that they delay no other request.
    """

    def __init__(self, listener: socket.socket, answer: Callable[[Connection], None], long_path: str) -> None:
        self._listener = listener
        self._answer = answer
        self._limit = min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._reading: dict[Connection, None] = {}  # in the order of their deadlines
        self._being_answered = 0
        self._arrived: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._long: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._long_head = b"POST " + long_path.encode()
        self._long_threads = 0
        self._long_in_progress = 0
        self._answered: deque[Connection] = deque()
        self._is_ending = False
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for one in (listener, self._waker, self._woken):
            one.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._take_back)

    def run(self) -> None:
        """Serve until `end`. The calling thread is the reading thread."""
        for _ in range(_THREADS):
            threading.Thread(target=self._answer_all, args=(self._arrived,), daemon=True).start()
        while not self._is_ending:
            for key, _ in self._selector.select(self._until_deadline()):
                key.data()
            self._expire()
        self._listener.close()

    def end(self) -> None:
        """Stop `run`; any thread may call it. Unfinished answers end with the process."""
        self._is_ending = True
        self._wake()

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                client, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is free, or the client has closed the connection
                self._close_oldest()
                return
            self._read(Connection(client, address, 0.0))
            while len(self._reading) + self._being_answered > self._limit:
                self._close_oldest()

    def _read(self, connection: Connection) -> None:
        connection.socket.setblocking(False)
        connection.deadline = time.monotonic() + _TIMEOUT
        self._reading[connection] = None
        self._selector.register(connection.socket, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: Connection) -> None:
        if connection not in self._reading:
            return  # closed after the selector found it readable
        try:
            data = connection.socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if connection.is_answered:
            if not data:
                self._close(connection)
            return
        connection.received += data
        if connection.whole is None:
            connection.whole = _whole(connection.received, len(data))
        if not connection.received:
            self._close(connection)
        elif not data or (connection.whole is not None and len(connection.received) >= connection.whole):
            self._hand_over(connection)
        elif len(connection.received) >= _LONGEST:
            with suppress(OSError):
                connection.socket.send(_TOO_LONG)
            self._forget(connection)
            self._await_close(connection)

    def _hand_over(self, connection: Connection) -> None:
        self._forget(connection)
        self._being_answered += 1
        connection.socket.setblocking(True)
        connection.is_long = connection.received.startswith(self._long_head)
        if not connection.is_long:
            self._arrived.put(connection)
            return
        self._long_in_progress += 1
        if self._long_threads < min(self._long_in_progress, _MOST_LONG_THREADS):
            self._long_threads += 1
            threading.Thread(target=self._answer_all, args=(self._long,), daemon=True).start()
        self._long.put(connection)

    def _answer_all(self, arrived: queue.SimpleQueue[Connection]) -> None:
        while True:
            connection = arrived.get()
            try:
                self._answer(connection)
            except Exception:
                sys.stderr.write(traceback.format_exc())
            self._answered.append(connection)
            self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the socket is full of unread wake-ups already
            self._waker.send(b"\0")

    def _take_back(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(_READ)
        while self._answered:
            self._being_answered -= 1
            connection = self._answered.popleft()
            self._long_in_progress -= connection.is_long
            self._await_close(connection)

    def _await_close(self, connection: Connection) -> None:
        connection.is_answered = True
        connection.received.clear()
        try:
            connection.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the client has closed the connection
            connection.socket.close()
            return
        self._read(connection)

    def _expire(self) -> None:
        while self._reading and next(iter(self._reading)).deadline <= time.monotonic():
            self._close_oldest()

    def _until_deadline(self) -> float | None:
        if not self._reading:
            return None
        return max(0.0, next(iter(self._reading)).deadline - time.monotonic())

    def _close_oldest(self) -> None:
        if self._reading:
            self._close(next(iter(self._reading)))

    def _close(self, connection: Connection) -> None:
        self._forget(connection)
        connection.socket.close()

    def _forget(self, connection: Connection) -> None:
        del self._reading[connection]
        self._selector.unregister(connection.socket)


def _whole(received: bytearray, new: int) -> int | None:
    """The bytes of the head plus those of a small body; None while the head is incomplete.

    A body counts only where the client sends it without waiting for `100 Continue`. The head's end is searched in the
    last `new` bytes.
    """
    found = _HEAD_END.search(received, max(0, len(received) - new - 2))
    if found is None:
        return None
    head = found.end()
    length = _LENGTH.search(received, 0, head)
    if length is None or _EXPECT.search(received, 0, head) or head + int(length[1]) > _LONGEST:
        return head
    return head + int(length[1])
