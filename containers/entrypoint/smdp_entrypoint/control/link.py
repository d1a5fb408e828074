"""A connection between two hosts' entrypoints: JSON objects, one per line, after each side has proved that it knows
the job's key.

    listening side                                    connecting side
    {"nonce": N1}                            -->
                                             <--      {"host": H, "nonce": N2, "proof": HMAC("join", N1, N2, H)}
    {"proof": HMAC("welcome", N1, N2, H)}    -->

A key derived from the job's secret keeps out unauthenticated clients that can reach the port. It does not protect
against an attacker on the path between the hosts. Others can compute the key of a job without a secret: that key only
distinguishes jobs, and the first host checks the client's address (`addresses`). `flush` and `receive` do not block.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Callable

# The kind of a message for another part of the entrypoint, in its member `fields`.
MESSAGE = "message"
_LONGEST_MESSAGE = 64 * 1024  # bytes
_BLOCK = 64 * 1024


class LinkError(Exception):
    """The connection is closed or its messages are malformed; it can no longer be used."""


def job_key(token: str | None, *facts: str) -> bytes:
    """The key from the job's secret, or, without a secret, from the job's public names, which authenticate nothing."""
    return hashlib.sha256("\0".join([token] if token else facts).encode("utf-8", "replace")).digest()


class Link:
    """`last_received` is the monotonic time of the last bytes received, or of the start; `host` is the other side's
    name once it has authenticated, and "" before that. `say` gets a line about a message that is not sent."""

    def __init__(self, connection: socket.socket, key: bytes, say: Callable[[str], None]) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.host = ""
        self.last_received = self.created_at = time.monotonic()
        self._key = key
        self._say = say
        self._in, self._out = bytearray(), bytearray()

    def fileno(self) -> int:
        return self.connection.fileno()

    @property
    def pending(self) -> bool:
        return bool(self._out)

    @property
    def proved(self) -> bool:
        return bool(self.host)

    def send(self, kind: str, **fields: Any) -> None:
        """A message that is too long is not sent: the other side would close the connection."""
        self._put({"is": kind, **fields})

    def flush(self) -> None:
        """Raises LinkError."""
        try:
            while self._out:
                del self._out[: self.connection.send(self._out)]
        except BlockingIOError:
            return
        except OSError as error:
            raise LinkError(str(error)) from error

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived since the last call. Raises LinkError."""
        try:
            block = self.connection.recv(_BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            block = b""
        if not block:
            raise LinkError("its connection closed without a final message")
        self.last_received = time.monotonic()
        self._in += block
        messages = [message for message in map(self._handle, self._lines()) if message]
        if len(self._in) > _LONGEST_MESSAGE:
            raise LinkError(f"a message is longer than {_LONGEST_MESSAGE} bytes")
        return messages

    def close(self) -> None:
        with suppress(OSError):
            self.connection.close()

    def _lines(self) -> list[bytes]:
        *lines, rest = bytes(self._in).split(b"\n")
        self._in = bytearray(rest)
        return lines

    def _handle(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise LinkError("a received line is not a message") from None
        if not isinstance(message, dict):
            raise LinkError("a received line is not a message")
        if self.proved:
            return message
        self._handshake(message)
        return None

    def _handshake(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def _put(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        if len(line) > _LONGEST_MESSAGE:
            self._say(f"a message to {self.host} is not sent: it has {len(line)} of at most {_LONGEST_MESSAGE} bytes")
            return
        self._out += line

    def _proof(self, role: str, first: str, second: str, host: str) -> str:
        return hmac.new(self._key, "\0".join([role, first, second, host]).encode(), hashlib.sha256).hexdigest()

    @staticmethod
    def _is_same(received: object, proof: str) -> bool:
        return hmac.compare_digest(str(received).encode("utf-8", "replace"), proof.encode())


class ListeningLink(Link):
    """The listening side of a connection from `address`; admits only `hosts`."""

    def __init__(
        self,
        connection: socket.socket,
        key: bytes,
        hosts: Collection[str],
        address: str = "",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(connection, key, say)
        self.address = address
        self._hosts = hosts
        self._nonce = secrets.token_hex(16)
        self._put({"nonce": self._nonce})

    def _handshake(self, message: dict[str, Any]) -> None:
        host, nonce = str(message.get("host")), str(message.get("nonce"))
        proof = self._proof("join", self._nonce, nonce, host)
        if host not in self._hosts or not self._is_same(message.get("proof"), proof):
            raise LinkError("the connecting side does not have this job's key")
        self._put({"proof": self._proof("welcome", self._nonce, nonce, host)})
        self.host = host


class CallingLink(Link):
    """The connecting side, as host `own`; the other side is `host`."""

    def __init__(
        self,
        connection: socket.socket,
        key: bytes,
        own: str,
        host: str,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(connection, key, say)
        self._own, self._called = own, host
        self._nonce = secrets.token_hex(16)
        self._expected = ""

    def _handshake(self, message: dict[str, Any]) -> None:
        if not self._expected:
            first = str(message.get("nonce"))
            self._expected = self._proof("welcome", first, self._nonce, self._own)
            proof = self._proof("join", first, self._nonce, self._own)
            self._put({"host": self._own, "nonce": self._nonce, "proof": proof})
        elif self._is_same(message.get("proof"), self._expected):
            self.host = self._called
        else:
            raise LinkError("the listening side does not have this job's key")
