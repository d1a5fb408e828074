"""Unauthenticated clients: connects a number of them per second to each port, and prints the outcome of each.

    python native/tests/support/unauthenticated_clients.py --rate 100 --seconds 5 [--hello FILE] HOST:PORT...

Prints one JSON line per client, then one with the processor time of all clients.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

# A broadcast frame that declares a huge payload (docs/reference/wire-format.md).
OVERSIZED = b"SMDP" + bytes([2]) + bytes(59) + (1 << 60).to_bytes(8, "little")
GIVE_UP_S = 30.0
BETWEEN_BYTES_S = 0.05  # of the slow client


@dataclass
class Client:
    kind: str
    port: int
    data: bytes
    slow: bool = False
    began: float = field(default_factory=time.monotonic)
    sent: int = 0
    received: int = 0
    end: str = ""  # refused, closed, or open: not closed within GIVE_UP_S
    took_s: float = 0.0

    def report(self) -> dict[str, object]:
        names = ("kind", "port", "sent", "received", "end", "took_s")
        return {name: getattr(self, name) for name in names}


def kinds(hello: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Name, data, and whether the data is sent byte by byte. ``hello``: a captured hello of the job."""
    yield "silent", b"", False
    yield "garbage", os.urandom(64), False
    yield "oversized", OVERSIZED + bytes(1 << 16), False
    if hello:
        yield "replayed", hello, False
        yield "replayed and more", hello + os.urandom(1 << 16), False
        yield "slow", hello, True


class ClientLoad:
    def __init__(self, targets: list[tuple[str, int]], hello: bytes) -> None:
        self._targets = targets
        self._hello = hello
        self._selector = selectors.DefaultSelector()
        self.all: list[Client] = []

    def run(self, rate: float, seconds: float) -> None:
        """Connect ``rate`` clients per second to each port; return when all connections are closed."""
        began = time.monotonic()
        kinds_in_turn = cycle(kinds(self._hello))
        rounds = 0
        while rounds < rate * seconds or self._selector.get_map():
            now = time.monotonic()
            while rounds < rate * seconds and now >= began + rounds / rate:
                kind = next(kinds_in_turn)
                for target in self._targets:
                    self._connect(target, *kind)
                rounds += 1
            self._poll(0.005 if rounds < rate * seconds else 0.02)

    def _connect(self, target: tuple[str, int], kind: str, data: bytes, slow: bool) -> None:
        client = Client(kind, target[1], data, slow)
        self.all.append(client)
        line = socket.socket()
        line.setblocking(False)
        if line.connect_ex(target) not in (0, errno.EINPROGRESS):
            self._end(client, line, "refused")
            return
        self._selector.register(line, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

    def _poll(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            line, client = key.fileobj, key.data
            assert isinstance(line, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    self._send(line, client)
                if events & selectors.EVENT_READ:
                    self._receive(line, client)
            except ConnectionRefusedError:
                self._end(client, line, "refused")
            except OSError:
                self._end(client, line, "closed")
        self._check_times()

    def _check_times(self) -> None:
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            client, line = key.data, key.fileobj
            assert isinstance(line, socket.socket)
            if client.slow and client.sent < min(len(client.data), (now - client.began) / BETWEEN_BYTES_S):
                self._selector.modify(line, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
            if now - client.began > GIVE_UP_S:
                self._end(client, line, "open")

    def _send(self, line: socket.socket, client: Client) -> None:
        error = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        left = client.data[client.sent :]
        if left:
            client.sent += line.send(left[:1] if client.slow else left)
        if client.slow or client.sent == len(client.data):
            self._selector.modify(line, selectors.EVENT_READ, client)

    def _receive(self, line: socket.socket, client: Client) -> None:
        block = line.recv(4096)
        client.received += len(block)
        if not block:
            self._end(client, line, "closed")

    def _end(self, client: Client, line: socket.socket, end: str) -> None:
        if line.fileno() in self._selector.get_map():
            self._selector.unregister(line)
        line.close()
        client.end = end
        client.took_s = time.monotonic() - client.began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--hello", type=Path)
    parser.add_argument("targets", nargs="+")
    arguments = parser.parse_args()
    pairs = [target.rsplit(":", 1) for target in arguments.targets]
    load = ClientLoad(
        [(host, int(port)) for host, port in pairs], arguments.hello.read_bytes() if arguments.hello else b""
    )
    load.run(arguments.rate, arguments.seconds)
    for client in load.all:
        print(json.dumps(client.report()))
    print(json.dumps({"cpu_s": time.process_time()}))


if __name__ == "__main__":
    sys.exit(main())
