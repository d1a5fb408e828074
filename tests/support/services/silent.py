"""A service that accepts connections and does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from smdp_launch.jobs.service.clients import Clients, connect_endpoint


class Silent:
    """A server that accepts every connection and never answers. The first connection sets ``asked``."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked = threading.Event()
        self.calls = 0

    @contextmanager
    def listening(self) -> Iterator[Silent]:
        thread = threading.Thread(target=self._listen)
        thread.start()
        try:
            yield self
        finally:
            self._socket.shutdown(socket.SHUT_RDWR)
            thread.join()
            self._socket.close()

    def _listen(self) -> None:
        held = []
        with suppress(OSError):
            while True:
                held.append(self._socket.accept()[0])
                self.calls += 1
                self.asked.set()
        for one in held:
            one.close()


def clients_of(url: str) -> Clients:
    return connect_endpoint(url, "us-east-1", "key", "secret")
