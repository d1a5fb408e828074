"""A flag that the handler of a signal may set.

A ``threading.Event`` is none: Python runs a handler in the main thread, between any two of its instructions, and where
that thread holds the lock of the event, on its way into or out of ``wait``, ``set`` waits for it for ever.
"""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, SimpleQueue


class SignalFlag:
    """As ``threading.Event``, without a lock that a handler could find taken."""

    def __init__(self) -> None:
        self._is_set = False
        self._news: SimpleQueue[None] = SimpleQueue()  # documented as reentrant, which Queue is not

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._news.put(None)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        """Whether it is set, as soon as it is and after ``timeout`` seconds at the latest."""
        deadline = time.monotonic() + timeout
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                self._news.get(timeout=left)
                if self.is_set():
                    self._news.put(None)  # for another thread that waits
        return self._is_set
