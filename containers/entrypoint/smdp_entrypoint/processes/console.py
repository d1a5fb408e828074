"""The one place that writes: our standard output, never blocking the caller.

The log proves who wrote an event (docs/events.md): `[HOST] {"smdp_event":` begins an event of the entrypoint and
nothing else, `[HOST:RANK] {"smdp_event":` one of that worker: of its engine, if it is named "engine", else of its
script. Elsewhere in what workers, pip and other hosts write this marker gets a space, so that no cut of a long line and
no search inside one finds an event.

A log collector that stalls must not keep a stop signal from the workers, so bytes that the descriptor does not take
at once wait in memory; the loop in `supervisor` asks `pending` and stops reading from the workers while it is large.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import threading
import time
from typing import Any

# A pipe that reports itself writable takes this many bytes without blocking and in one piece (POSIX PIPE_BUF on
# Linux), so that lines up to this size stay whole even where several entrypoints share one pipe.
_CHUNK = 4096

EVENT_VERSION = 1
_EVENT = '{"smdp_event":'
_NO_EVENT = '{ "smdp_event":'
_ENGINE_EVENT = "engine"
# What followers remove from texts or change (smdp_launch/plain_text.py): controls, with escape sequences, characters
# that turn the direction of writing, halves of surrogate pairs.
_REMOVED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Console:
    """Prefixed lines on a descriptor, from any thread. `host` is the label, known once resourceconfig.json has been
    read."""

    def __init__(self, fd: int = 1, host: str = "?") -> None:
        self.fd = fd
        self.host = host
        self._waiting = bytearray()
        self._broken = False
        # Reentrant, since the handler of a stop signal may interrupt its holder.
        self._lock = threading.RLock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def pending(self) -> int:
        """Bytes accepted but not yet taken by the descriptor."""
        return len(self._waiting)

    def say(self, text: str) -> None:
        """A message of the entrypoint itself, every line of it prefixed with the host; never an event."""
        for line in text.rstrip("\n").split("\n"):
            self.write(f"[{self.host}] {_without_events(line)}")

    def worker_line(self, rank: int, text: str) -> None:
        """What the script of a worker wrote, on standard output or standard error."""
        self._worker_line(rank, text, is_event=_event_name(text) not in (None, _ENGINE_EVENT))

    def engine_line(self, rank: int, text: str) -> None:
        """What the engine of a worker wrote, on its own pipe; only its events are expected there."""
        self._worker_line(rank, text, is_event=_event_name(text) == _ENGINE_EVENT)

    def _worker_line(self, rank: int, text: str, *, is_event: bool) -> None:
        event = _EVENT if is_event else ""
        self.write(f"[{self.host}:{rank}] {event}{_without_events(text[len(event) :])}")

    def event(self, name: str, **fields: Any) -> None:
        """One event line as docs/events.md describes it; `time` is now unless given."""
        head = {"smdp_event": EVENT_VERSION, "event": name, "time": time.time(), "host": self.host}
        record = {**head, **fields}
        self.write(f"[{self.host}] {json.dumps(record)}")

    def write(self, line: str) -> None:
        if self._broken:
            return
        with self._lock:
            self._waiting += line.encode("utf-8", "replace") + b"\n"
            self.flush()

    def flush(self) -> None:
        """Hand over what the descriptor takes now."""
        with self._lock:
            while self._waiting and self._poll.poll(0):
                if not self._write_chunk():
                    return

    def drain(self, patience: float = 10.0) -> None:
        """Hand over everything, giving up when nothing was taken for `patience` seconds."""
        with self._lock:
            while self._waiting and self._poll.poll(patience * 1000):
                if not self._write_chunk():
                    time.sleep(0.01)  # a descriptor that someone made non-blocking

    def _write_chunk(self) -> bool:
        try:
            del self._waiting[: os.write(self.fd, self._next_chunk())]
        except BlockingIOError:
            return False
        except OSError as error:
            self._give_up(error)
        return True

    def _next_chunk(self) -> bytes:
        end = self._waiting.rfind(b"\n", 0, _CHUNK) + 1
        return bytes(self._waiting[: end or _CHUNK])

    def _give_up(self, error: OSError) -> None:
        # Nobody reads any more (or the disk is full for now): the training matters more than its log.
        self._waiting.clear()
        self._broken = error.errno in (errno.EPIPE, errno.EBADF)


def _event_name(text: str) -> str | None:
    """Of a line that any follower could take for an event; None for other lines, and for those with names from which a
    follower removes characters."""
    if not text.startswith(_EVENT):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or any(map(_REMOVED.search, fields)):
        return None
    name = fields.get("event")
    return name if isinstance(name, str) and not _REMOVED.search(name) else None


def _without_events(text: str) -> str:
    return text.replace(_EVENT, _NO_EVENT)
