"""The HTTP server of `serve`: `GET /ping` and `POST /invocations`, each connection in a thread of its own.

The server answers `/ping` itself, so the platform's health check does not wait behind slow predictions.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Callable

from smdp_entrypoint.serving.messages import Request, Response

Answer = Callable[[Request], Response]
# Bytes of a body; the platform's largest are those of asynchronous requests.
MOST_BYTES = 1024**3
_LONGEST_LINE = 1024  # bytes: the size of a chunk, with its extensions
# Longer than the gaps between the platform's requests on a connection that it keeps open.
TOKEN_HEADER = "x-smdp-serve-token"  # noqa: S105 (the name of a header)
_IDLE_S = 75.0
# The server itself decides about the form of an answer.
_OWN_HEADERS = frozenset({"content-type", "content-length", "transfer-encoding", "connection", "date", "server"})
_BACKLOG = 1024


class BadRequestError(Exception):
    """A request that cannot be read."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.response = Response.refusal(status, text)


class Frontend(ThreadingHTTPServer):
    """Serves from `start` to `drain`. `answer` is called in the thread of each connection; `is_ready` decides about
    `/ping`. Requests for answers need the header TOKEN_HEADER with the `token`, unless that is empty."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, place: tuple[str, int], token: str, answer: Answer, is_ready: Callable[[], bool]) -> None:
        self.token = token
        self.answer = answer
        self.is_ready = is_ready
        self.is_draining = False
        self._active = 0
        self._change = threading.Condition()
        super().__init__(place, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's looks up the host's name, which can take seconds
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def drain(self, timeout: float) -> bool:
        """Accept no more connections, and wait until every request has its answer; False after `timeout` seconds."""
        self.is_draining = True
        self.shutdown()
        self.server_close()
        deadline = time.monotonic() + timeout
        with self._change:
            return self._change.wait_for(lambda: not self._active, max(0.0, deadline - time.monotonic()))

    @contextlib.contextmanager
    def request_in_progress(self) -> Any:
        with self._change:
            self._active += 1
        try:
            yield
        finally:
            with self._change:
                self._active -= 1
                self._change.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes its connection early is no error of the server."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, socket.timeout)):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: Frontend
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Any:
        """The base class looks for `do_GET`, `do_POST` and so on; all methods have one handler, which refuses some."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        with self.server.request_in_progress():
            try:
                response = self._response(self._body())
            except BadRequestError as error:
                self.close_connection = True  # the rest of the request is not read
                response = error.response
            self._send(response)

    def _response(self, body: bytes) -> Response:
        path = self.path.partition("?")[0]
        method = {"/ping": "GET", "/invocations": "POST"}.get(path)
        if method is None:
            return Response.refusal(404, f"There is no {path}. The server has GET /ping and POST /invocations.")
        if self.command != method:
            return Response.refusal(405, f"{path} needs the method {method}.")
        if path == "/ping":
            return Response(200 if self.server.is_ready() else 503, b"")
        headers = {name.lower(): value for name, value in self.headers.items()}
        token = headers.pop(TOKEN_HEADER, "")
        if self.server.token and not hmac.compare_digest(token.encode("utf-8"), self.server.token.encode("utf-8")):
            return Response.refusal(403, f"The header {TOKEN_HEADER} has not the value of SMDP_SERVE_TOKEN.")
        return self.server.answer(Request(body, headers))

    def _body(self) -> bytes:
        """Raises BadRequestError."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunks()
        text = self.headers.get("Content-Length", "0").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise BadRequestError(400, "The Content-Length is not a number.")
        if int(text) > MOST_BYTES:
            raise _too_large()
        return self._read(int(text))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = self._chunk_size()
            if len(body) + size > MOST_BYTES:
                raise _too_large()
            if not size:
                break
            body += self._read(size)
            self.rfile.readline(_LONGEST_LINE)
        while self.rfile.readline(_LONGEST_LINE).strip():  # trailing headers
            pass
        return bytes(body)

    def _chunk_size(self) -> int:
        try:
            size = int(self.rfile.readline(_LONGEST_LINE).partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            raise BadRequestError(400, "The size of a chunk is not a hexadecimal number.")
        return size

    def _read(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise BadRequestError(400, "The connection ended before the body did.")
        return body

    def _send(self, response: Response) -> None:
        if self.server.is_draining:
            self.close_connection = True
        self.send_response(response.status)
        if response.content_type:
            self.send_header("Content-Type", _header(response.content_type))
        for name, value in response.headers.items():
            if name not in _OWN_HEADERS:
                self.send_header(name, _header(value))
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:
        """No line for each request: health checks would fill the log."""


def _too_large() -> BadRequestError:
    return BadRequestError(413, f"A request may have {MOST_BYTES} bytes.")


def _header(value: str) -> str:
    """A script's text as the value of a header, which has no line ends and only Latin-1."""
    return "".join(one for one in value if one.isprintable()).encode("latin-1", "replace").decode("latin-1")
