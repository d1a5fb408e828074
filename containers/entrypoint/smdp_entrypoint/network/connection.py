"""What both ends of a measured connection share: deadlines, socket options and the open sockets of a host.

A connection starts as a `Link` of the control channel: each side proves that it knows the job's token before the other
side reads anything else. Its measurement then uses the bare socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import struct
import threading
import time
from typing import Any

from smdp_entrypoint.control.link import Link, LinkError

#: Bytes that one call to the system sends or receives at most.
LARGEST_CHUNK = 4 * 1024 * 1024
SMALLEST_CHUNK = 16 * 1024
PINGS = 20
#: Bytes of the receive window of a connection whose rate is measured.
WINDOW = 1 << 20
#: A blocked call returns this often, to look at its deadline.
_TICK_S = 0.1


class Sockets:
    """The open sockets of this host's probe. `close` ends all calls that wait on one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    def add(self, one: socket.socket) -> None:
        """Raises LinkError if the probe has ended."""
        with self._lock:
            if not self._closed:
                self._open.add(one)
                return
        one.close()
        raise LinkError("the probe has ended")

    def remove(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        with contextlib.suppress(OSError):
            one.close()

    def shut(self, some: list[socket.socket]) -> None:
        """End all calls that wait on these sockets. Their threads close them."""
        with self._lock:
            for one in some:
                if one in self._open:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            some = list(self._open)
        self.shut(some)


def probe_key(token: str) -> bytes:
    """Another key than that of the control channel, so that no proof of one is valid in the other."""
    return hashlib.sha256(b"network probe\0" + token.encode("utf-8", "replace")).digest()


def prove(link: Link, deadline: float) -> None:
    """Wait until both sides have authenticated. Raises LinkError."""
    while not link.proved:
        _receive(link, deadline)


def next_message(link: Link, deadline: float) -> dict[str, Any]:
    """The next message of the other side. Raises LinkError."""
    while True:
        messages = _receive(link, deadline)
        if messages:
            return messages[0]


def send_all(link: Link, deadline: float) -> None:
    """Raises LinkError."""
    link.flush()
    while link.pending:
        _wait(link, select.POLLOUT, deadline)
        link.flush()


def bulk(connection: socket.socket) -> None:
    """Let calls on the socket block for a short time each, and its end discard what is unsent."""
    connection.setblocking(True)
    pause = struct.pack("ll", 0, int(_TICK_S * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pause)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pause)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def open_window(connection: socket.socket) -> None:
    """Let the receive window grow to `WINDOW` at once. Beyond that, the system makes it larger as for any connection.

    The window that the system begins with is smaller than the queue of a slow link. Such a link is at work while the
    sender waits for the window, but this time does not count as time of sending: the link would seem faster than it is.
    And a large window does not close while this process waits for a processor. SO_RCVBUF would fix the size; a larger
    SO_RCVLOWAT raises it (Linux 4.17), and it stays when SO_RCVLOWAT is set back.
    """
    for size in (WINDOW, 1):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def _receive(link: Link, deadline: float) -> list[dict[str, Any]]:
    send_all(link, deadline)
    _wait(link, select.POLLIN, deadline)
    messages = link.receive()
    send_all(link, deadline)
    return messages


def _wait(link: Link, events: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(link.connection, events)
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poll.poll(remaining * 1000):
        raise LinkError("it did not answer in time")
