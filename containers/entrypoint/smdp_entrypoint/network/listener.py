"""The receiving end of measured links: answers the pings of other hosts, and discards the bytes that they send.

One thread accepts connections and authenticates them; each authenticated connection then gets a thread of its own. A
client that does not prove within seconds that it has the job's token is disconnected, and only a limited number of such
clients can be connected at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from typing import Any, Collection

from smdp_entrypoint.control.link import LinkError, ListeningLink
from smdp_entrypoint.network.connection import LARGEST_CHUNK, PINGS, Sockets, bulk, open_window, send_all
from smdp_entrypoint.network.rails import Rail

# A client has this long to authenticate. More unauthenticated connections than this are refused.
_HANDSHAKE_S = 2.0
_MAX_UNAUTHENTICATED = 128
_MAX_CONNECTIONS = 4096
_LONGEST_S = 600.0
_TICK_S = 0.25


class Listener:
    """Listens on each of `rails` from `open` to `close`. Only `hosts` can connect, with the key `key`."""

    def __init__(self, rails: Collection[Rail], hosts: Collection[str], key: bytes) -> None:
        self.places: dict[str, tuple[str, int]] = {}
        self._rails, self._hosts, self._key = rails, frozenset(hosts), key
        self._selector = selectors.DefaultSelector()
        self._listening: list[socket.socket] = []
        self._links: list[ListeningLink] = []
        self._sockets = Sockets()
        self._threads: list[threading.Thread] = []
        self._buffer = memoryview(bytearray(LARGEST_CHUNK))
        self._wake, self._wake_end = os.pipe()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="network listener", daemon=True)

    def open(self) -> None:
        """A rail that cannot be listened on is left out of `places`."""
        for rail in self._rails:
            with contextlib.suppress(OSError):
                self._listen(rail)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread.start()

    def close(self, seconds: float = 2.0) -> None:
        """End all connections and threads."""
        self._over.set()
        os.write(self._wake_end, b"\0")
        self._thread.join(seconds)
        self._sockets.close()
        for thread in self._threads:
            thread.join(seconds)
        self._selector.close()
        for listening in self._listening:
            listening.close()
        for link in self._links:
            link.close()
        os.close(self._wake)
        os.close(self._wake_end)

    def _listen(self, rail: Rail) -> None:
        listening = socket.socket(socket.AF_INET6 if ":" in rail.address else socket.AF_INET, socket.SOCK_STREAM)
        self._listening.append(listening)
        listening.bind((rail.address, 0))
        listening.listen(_MAX_UNAUTHENTICATED)
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        self.places[rail.name] = (rail.address, int(listening.getsockname()[1]))

    def _serve(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(_TICK_S):
                if isinstance(key.data, ListeningLink):
                    self._receive_from(key.data)
                elif key.fileobj is not self._wake:
                    self._accept(key.fileobj)
            now = time.monotonic()
            for link in [link for link in self._links if now - link.created_at > _HANDSHAKE_S]:
                self._remove(link)

    def _accept(self, listening: Any) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # the client has closed the connection
        if len(self._links) >= _MAX_UNAUTHENTICATED or len(self._threads) >= _MAX_CONNECTIONS:
            connection.close()
            return
        link = ListeningLink(connection, self._key, self._hosts)
        self._links.append(link)
        self._selector.register(link, selectors.EVENT_READ, link)
        self._flush(link)

    def _flush(self, link: ListeningLink) -> None:
        try:
            link.flush()  # the messages of a handshake fit into the empty buffer of a new connection
        except LinkError:
            self._remove(link)

    def _receive_from(self, link: ListeningLink) -> None:
        try:
            messages = link.receive()
        except (LinkError, ValueError):
            self._remove(link)
            return
        self._flush(link)
        if messages:
            self._links.remove(link)
            self._selector.unregister(link)
            self._start(link, messages[0])

    def _remove(self, link: ListeningLink) -> None:
        if link in self._links:
            self._links.remove(link)
            self._selector.unregister(link)
            link.close()

    def _start(self, link: ListeningLink, request: dict[str, Any]) -> None:
        thread = threading.Thread(target=self._measure, args=[link, request], name="network link", daemon=True)
        try:
            self._sockets.add(link.connection)
            thread.start()
        except LinkError:
            return
        except RuntimeError:  # the container's limit of threads
            self._sockets.remove(link.connection)
            return
        self._threads.append(thread)

    def _measure(self, link: ListeningLink, request: dict[str, Any]) -> None:
        try:
            deadline = time.monotonic() + _within(request.get("limit"), _LONGEST_S)
            link.send("go")
            send_all(link, deadline)
            bulk(link.connection)
            if request.get("is") == "rate":
                open_window(link.connection)
                self._discard(link.connection, deadline)
            else:
                self._echo(link.connection, deadline)
        except (LinkError, OSError, ValueError):
            pass  # the other side reports it
        finally:
            self._sockets.remove(link.connection)

    def _echo(self, connection: socket.socket, deadline: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answered = 0
        while answered < PINGS and time.monotonic() < deadline:
            try:
                ping = connection.recv(1)
            except BlockingIOError:
                continue
            if not ping:
                return
            connection.sendall(ping)
            answered += 1

    def _discard(self, connection: socket.socket, deadline: float) -> None:
        """Receive until the other side has measured enough."""
        flags = socket.MSG_WAITALL | socket.MSG_TRUNC  # for TCP: discard the bytes without a copy
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                if not connection.recv_into(self._buffer, LARGEST_CHUNK, flags):
                    return


def _within(value: Any, most: float) -> float:
    """A number of seconds from another host, `most` at most. Raises ValueError."""
    if not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError("no number of seconds")
    return min(float(value), most)
