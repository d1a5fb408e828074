"""Serves the numbers of a run to a scraper while the job is followed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.run_metrics.openmetrics import CONTENT_TYPE
from smdp_launch.signals.flag import SignalFlag

_PATHS = ("/", "/metrics")
_CLIENT_SECONDS = 10.0  # for a request


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that disconnects is no error of this command."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Args:
    address: host and port; port 0 for any free one.
    text: makes the exposition; called in the server's threads.

    Raises:
        EnvironmentProblem: the address is in use, or is none of this machine.
    """

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        self._scraped = scraped = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            timeout = _CLIENT_SECONDS
            server_version = "smdp-launch"
            sys_version = ""

            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in _PATHS:
                    self.send_error(404, "the numbers are at /metrics")
                    return
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                scraped.set()

            def log_message(self, format: str, *args: object) -> None:
                """Standard error is for the command's own messages."""

        kind = _ServerV6 if ":" in address[0] else _Server
        try:
            self._server = kind(address, Handler)
        except OSError as error:
            host, port = address
            raise EnvironmentProblem(
                f"cannot listen on {host}:{port}: {error.strerror or error}; give another address with --listen"
            ) from error

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def wait_for_scrape(self, seconds: float, interrupted: SignalFlag) -> None:
        """Wait until the numbers of this moment were read, at most ``seconds``."""
        self._scraped.clear()
        gap = 0.1
        for _ in range(int(seconds / gap)):
            if self._scraped.wait(gap) or interrupted.is_set():
                return
