"""A flag that the handler of a signal may set.

A ``threading.Event`` is none: Python runs a handler in the main thread, between any two of its instructions, and where
that thread holds the lock of the event, on its way into or out of ``wait``, ``set`` waits for it for ever. Nor is a
``queue.SimpleQueue``: under a signal at the end of its timeout ``get`` was seen to hang in Python 3.11. So nothing is
locked or woken here: who waits looks now and then.
"""

from __future__ import annotations

import time

_LOOK = 0.05  # seconds between two looks: nobody notices


class SignalFlag:
    """As ``threading.Event``; ``wait`` may be late by the time between two looks."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> bool:
        """Whether it is set, soon after it is and after ``timeout`` seconds at the latest."""
        deadline = time.monotonic() + timeout
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        return self._is_set
