"""A limit of speed for what one host reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST = 0.1  # seconds of the rate that may be read at once


class Throttle:
    """A token bucket, shared by the channels of a host.

    Args:
        rate: bytes a second; 0 for no limit.
        latency: seconds before the first bytes of each opening of a file.
        clock: seconds.
    """

    def __init__(self, rate: float, latency: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._latency = latency
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = float("-inf")  # when the bucket has paid for all that was read

    @property
    def burst(self) -> float:
        """The bytes that may be read at once after a pause."""
        return self._rate * _BURST

    def due(self, amount: int, *, is_first: bool) -> float:
        """The time, on the clock, at which `amount` bytes may be delivered. Later calls are due after it.

        Latencies of several readers run at the same time.
        """
        now = self._clock()
        at = now
        if self._rate > 0:
            with self._lock:
                self._free_at = max(self._free_at, now - _BURST) + amount / self._rate
                at = max(at, self._free_at)
        return max(at, now + self._latency) if is_first else at
