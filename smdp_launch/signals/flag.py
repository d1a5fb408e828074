"""A flag that a signal handler may set.

A ``threading.Event`` is not safe for that: Python runs the handler in the main thread, between any two instructions. If
that thread holds the event's lock, at the start or the end of ``wait``, then ``set`` waits for the lock for ever. A
``queue.SimpleQueue`` is not safe either: ``get`` was seen to hang in Python 3.11 after a signal at the end of its
timeout. So this flag uses no lock: ``wait`` polls it.
"""

from __future__ import annotations

import time

_POLL = 0.05  # seconds


class SignalFlag:
    """As ``threading.Event``, but ``wait`` may return up to 0.05 s late."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        """Wait until the flag is set, for at most ``timeout`` seconds. Return whether it is set."""
        deadline = time.monotonic() + timeout
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _POLL))
        return self._is_set
