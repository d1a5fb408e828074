"""Writes the entrypoint's log to its standard output without blocking the caller.

The prefix of a log line shows the author of an event (docs/reference/events.md): only an event of the entrypoint
starts with `[HOST] {"smdp_event":`, and only an event of a worker with `[HOST:RANK] {"smdp_event":`. It is an event of
the worker's engine, which has a pipe of its own, if its name is "engine" or "timing", else of the script. In all other
output of workers, pip and other hosts a space is inserted into this marker, so that no part of a long line looks like
an event.

A log collector that stalls must not delay a stop signal, so bytes that the descriptor does not accept at once wait in
memory; the loop in `supervisor` reads `pending` and stops reading from the workers while it is large.
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

# A writable pipe accepts this many bytes without blocking and in one piece (PIPE_BUF on Linux), so lines up to this
# size stay whole even if several entrypoints share one pipe.
_CHUNK = 4096

EVENT_VERSION = 1
_EVENT = '{"smdp_event":'
_NO_EVENT = '{ "smdp_event":'
_ENGINE_EVENTS = ("engine", "timing")
# Characters that log readers remove or change (smdp_launch/plain_text.py): control characters, characters that change
# the writing direction, lone surrogates.
_REMOVED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Console:
    """Writes prefixed lines to a descriptor, from any thread. `host` is the label, which resourceconfig.json gives."""

    def __init__(self, fd: int = 1, host: str = "?") -> None:
        self.fd = fd
        self.host = host
        self._waiting = bytearray()
        self._broken = False
        # Reentrant, since the handler of a stop signal may interrupt the thread that owns the lock.
        self._lock = threading.RLock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def pending(self) -> int:
        """The number of bytes that wait to be written."""
        return len(self._waiting)

    def say(self, text: str) -> None:
        """Write a message of the entrypoint, with the host as the prefix of every line; it is never read as an
        event."""
        for line in text.rstrip("\n").split("\n"):
            self.write(f"[{self.host}] {_without_events(line)}")

    def worker_line(self, rank: int, text: str) -> None:
        """Write a line that a worker's script wrote to standard output or standard error."""
        self._worker_line(rank, text, is_event=_event_name(text) not in (None, *_ENGINE_EVENTS))

    def engine_line(self, rank: int, text: str) -> None:
        """Write a line that a worker's engine wrote to its event pipe."""
        self._worker_line(rank, text, is_event=_event_name(text) in _ENGINE_EVENTS)

    def _worker_line(self, rank: int, text: str, *, is_event: bool) -> None:
        event = _EVENT if is_event else ""
        self.write(f"[{self.host}:{rank}] {event}{_without_events(text[len(event) :])}")

    def event(self, name: str, **fields: Any) -> None:
        """Write an event as docs/reference/events.md describes it; `time` is the current time by default."""
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
        """Write what the descriptor accepts without blocking."""
        with self._lock:
            while self._waiting and self._poll.poll(0):
                if not self._write_chunk():
                    return

    def drain(self, timeout: float = 10.0) -> None:
        """Write everything; give up if the descriptor accepts nothing for `timeout` seconds."""
        with self._lock:
            while self._waiting and self._poll.poll(timeout * 1000):
                if not self._write_chunk():
                    time.sleep(0.01)  # the descriptor is non-blocking

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
        # No reader is left, or the disk is full for now: training continues without this part of the log.
        self._waiting.clear()
        self._broken = error.errno in (errno.EPIPE, errno.EBADF)


def _event_name(text: str) -> str | None:
    """The event name in a line that a log reader could read as an event; None for other lines, and for lines with names
    from which a log reader removes characters."""
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
