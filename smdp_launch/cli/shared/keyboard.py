"""Reads a line from the terminal, while an interrupt can cancel the wait for it."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable

from smdp_launch.systems import IS_WINDOWS

_POLL = 0.1  # seconds
_LONGEST = 1024  # bytes of an answer


class Keyboard:
    """Not ``input()``: it notices a Ctrl-C between its prompt and its read only with the next key."""

    def __init__(self) -> None:
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []

    def line(self, is_cancelled: Callable[[], bool]) -> str | None:
        """The next line with its line end; empty at the end of input. None if the wait was cancelled."""
        return self._from_thread(is_cancelled) if IS_WINDOWS else _from_select(is_cancelled)

    def _from_thread(self, is_cancelled: Callable[[], bool]) -> str | None:
        """Windows cannot wait for a terminal with a timeout, so a thread reads it. A thread whose wait was cancelled
        still reads, and has the next line."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        while not is_cancelled():
            if self._lines:
                self._reader = None
                return self._lines.pop()
            time.sleep(_POLL)
        return None

    def _read(self) -> None:
        # Not sys.stdin: Python waits at its exit for a thread that reads it.
        self._lines.append(os.read(0, _LONGEST).decode(errors="replace"))


def _from_select(is_cancelled: Callable[[], bool]) -> str | None:
    while not is_cancelled():
        if select.select([sys.stdin], [], [], _POLL)[0]:
            return sys.stdin.readline()
    return None
