"""Test servers on loopback."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from socketserver import BaseServer
from typing import Iterator, TypeVar

ServerT = TypeVar("ServerT", bound=BaseServer)


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
