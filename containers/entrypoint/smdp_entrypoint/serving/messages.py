"""The messages between `serve` and its workers: a JSON head, then a body of bytes.

Each message begins with two lengths, of the head (4 bytes) and of the body (8 bytes), in network byte order.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Mapping

_LENGTHS = struct.Struct("!IQ")


@dataclass(frozen=True)
class Request:
    """An inference request. The names of `headers` are lower-case."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> dict[str, Any]:
        return {"headers": dict(self.headers)}


@dataclass(frozen=True)
class Response:
    """`content_type` is empty if there is none. `headers`: more headers of the answer."""

    status: int
    body: bytes
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> dict[str, Any]:
        return {"status": self.status, "content_type": self.content_type, "headers": dict(self.headers)}

    @staticmethod
    def refusal(status: int, text: str) -> Response:
        return Response(status, text.encode("utf-8", "replace"), "text/plain; charset=utf-8")


def send(connection: socket.socket, head: Mapping[str, Any], body: bytes = b"") -> None:
    """Raises OSError if the other side has gone."""
    encoded = json.dumps(head).encode("utf-8", "surrogatepass")
    connection.sendall(_LENGTHS.pack(len(encoded), len(body)) + encoded)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Raises EOFError or OSError if the other side has gone, and OSError (socket.timeout) at the socket's time limit
    between two parts of the message."""
    head_size, body_size = _LENGTHS.unpack(_read(connection, _LENGTHS.size))
    head: dict[str, Any] = json.loads(_read(connection, head_size).decode("utf-8", "surrogatepass"))
    return head, _read(connection, body_size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(data)
