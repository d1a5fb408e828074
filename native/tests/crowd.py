"""Strangers: so many a second on each port, and what became of each, as it saw it.

    python native/tests/crowd.py --rate 100 --seconds 5 [--hello FILE] HOST:PORT...

Prints one JSON line per stranger, then one with the processor time that they all took.
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

# A frame of a broadcast whose payload would fill the world (docs/wire_format.md).
OVERSIZED = b"SMDP" + bytes([2]) + bytes(59) + (1 << 60).to_bytes(8, "little")
GIVE_UP_S = 30.0
BETWEEN_BYTES_S = 0.05  # of the slow one


@dataclass
class Stranger:
    kind: str
    port: int
    words: bytes
    slow: bool = False
    began: float = field(default_factory=time.monotonic)
    said: int = 0
    heard: int = 0
    end: str = ""  # refused, closed, or open: nobody closed it
    took_s: float = 0.0

    def report(self) -> dict[str, object]:
        names = ("kind", "port", "said", "heard", "end", "took_s")
        return {name: getattr(self, name) for name in names}


def kinds(hello: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Name, what it says, and whether byte by byte. ``hello``: one of the job's own, caught on its way."""
    yield "silent", b"", False
    yield "garbage", os.urandom(64), False
    yield "oversized", OVERSIZED + bytes(1 << 16), False
    if hello:
        yield "replayed", hello, False
        yield "replayed and more", hello + os.urandom(1 << 16), False
        yield "slow", hello, True


class Crowd:
    def __init__(self, targets: list[tuple[str, int]], hello: bytes) -> None:
        self._targets = targets
        self._hello = hello
        self._selector = selectors.DefaultSelector()
        self.all: list[Stranger] = []

    def come(self, rate: float, seconds: float) -> None:
        """``rate`` a second on each port, for so long; returns when every one has seen its end."""
        began = time.monotonic()
        turns = cycle(kinds(self._hello))
        rounds = 0
        while rounds < rate * seconds or self._selector.get_map():
            now = time.monotonic()
            while rounds < rate * seconds and now >= began + rounds / rate:
                kind = next(turns)
                for target in self._targets:
                    self._begin(target, *kind)
                rounds += 1
            self._listen(0.005 if rounds < rate * seconds else 0.02)

    def _begin(self, target: tuple[str, int], kind: str, words: bytes, slow: bool) -> None:
        stranger = Stranger(kind, target[1], words, slow)
        self.all.append(stranger)
        line = socket.socket()
        line.setblocking(False)
        if line.connect_ex(target) not in (0, errno.EINPROGRESS):
            self._end(stranger, line, "refused")
            return
        self._selector.register(line, selectors.EVENT_READ | selectors.EVENT_WRITE, stranger)

    def _listen(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            line, stranger = key.fileobj, key.data
            assert isinstance(line, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    self._speak(line, stranger)
                if events & selectors.EVENT_READ:
                    self._hear(line, stranger)
            except ConnectionRefusedError:
                self._end(stranger, line, "refused")
            except OSError:
                self._end(stranger, line, "closed")
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            stranger, line = key.data, key.fileobj
            assert isinstance(line, socket.socket)
            if stranger.slow and stranger.said < min(len(stranger.words), (now - stranger.began) / BETWEEN_BYTES_S):
                self._selector.modify(line, selectors.EVENT_READ | selectors.EVENT_WRITE, stranger)
            if now - stranger.began > GIVE_UP_S:
                self._end(stranger, line, "open")

    def _speak(self, line: socket.socket, stranger: Stranger) -> None:
        error = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        left = stranger.words[stranger.said :]
        if left:
            stranger.said += line.send(left[:1] if stranger.slow else left)
        if stranger.slow or stranger.said == len(stranger.words):
            self._selector.modify(line, selectors.EVENT_READ, stranger)

    def _hear(self, line: socket.socket, stranger: Stranger) -> None:
        told = line.recv(4096)
        stranger.heard += len(told)
        if not told:
            self._end(stranger, line, "closed")

    def _end(self, stranger: Stranger, line: socket.socket, end: str) -> None:
        if line.fileno() in self._selector.get_map():
            self._selector.unregister(line)
        line.close()
        stranger.end = end
        stranger.took_s = time.monotonic() - stranger.began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--hello", type=Path)
    parser.add_argument("targets", nargs="+")
    arguments = parser.parse_args()
    pairs = [target.rsplit(":", 1) for target in arguments.targets]
    crowd = Crowd([(host, int(port)) for host, port in pairs], arguments.hello.read_bytes() if arguments.hello else b"")
    crowd.come(arguments.rate, arguments.seconds)
    for stranger in crowd.all:
        print(json.dumps(stranger.report()))
    print(json.dumps({"cpu_s": time.process_time()}))


if __name__ == "__main__":
    sys.exit(main())
