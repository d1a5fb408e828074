"""A proxy between a client and a service that breaks some of the calls, and counts what the service accepted.

It is the client's HTTP proxy, so that requests arrive as they were signed.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.services.threaded import answering


class Fault(Enum):
    RESET_BEFORE = "the connection is reset before the call reaches the service"
    RESET_AFTER = "the connection is reset after the service has acted"
    ERROR = "an error of the service's own"
    THROTTLED = "the service throttles the call"
    EXPIRED = "the credentials have expired"


#: For a JSON service: status, code. S3 has its own codes, in XML.
_ANSWERS = {
    Fault.ERROR: (500, "InternalFailure", "InternalError"),
    Fault.THROTTLED: (400, "ThrottlingException", "SlowDown"),
    Fault.EXPIRED: (400, "ExpiredTokenException", "ExpiredToken"),
}

#: Returns the fault of a call. Arguments: the operation, such as CreateTrainingJob or PUT for S3, and the access key.
Policy = Callable[[str, str], Fault | None]


class Proxy:
    """``accepted`` counts the calls that the service answered with success, by operation, whether or not the client got
    the answer; ``faults`` counts the broken calls."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.accepted: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def decide(self, operation: str, key: str) -> Fault | None:
        with self._lock:
            fault = self.policy(operation, key)
            if fault is not None:
                self.faults[fault] += 1
            return fault

    def note(self, operation: str, status: int) -> None:
        """Called when the service has answered, before the client gets the answer."""
        with self._lock:
            self.accepted[operation] += status < 300

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        with answering(self._server):
            yield self


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    timeout = 10

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2] or self.command
        match = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        fault = self.proxy.decide(operation, match[1] if match else "")
        if fault in _ANSWERS:
            self._refuse(*_ANSWERS[fault])
            return
        if fault is not Fault.RESET_BEFORE:
            status, headers, answer = self._forward(body)
            self.proxy.note(operation, status)
            if fault is None:
                self._answer(status, headers, answer)
                return
        # Reset the connection without closing it.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 (the names of the base class)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        url = urlsplit(self.path)
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
        connection.putrequest(self.command, url._replace(scheme="", netloc="").geturl() or "/", True, True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "proxy-connection", "connection"):
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), data

    def _refuse(self, status: int, code: str, s3_code: str) -> None:
        if "X-Amz-Target" in self.headers:
            body = f'{{"__type": "{code}", "message": "made to fail"}}'.encode()
            self._answer(status, [("Content-Type", "application/x-amz-json-1.1")], body)
        else:
            body = f"<Error><Code>{s3_code}</Code><Message>made to fail</Message></Error>".encode()
            self._answer(503 if s3_code == "SlowDown" else status, [("Content-Type", "application/xml")], body)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
