"""What a script without a loader reads in its training thread: the wait for the storage is input too.

Such a script, for example one that maps its data into memory, reads between the passes, anywhere. The system counts
for the thread how long it ran, how long it waited for a CPU, which bytes it read, and how often an access to a mapped
file waited for the storage. In a part of a step in which the thread has read, the rest of the time is the wait.

A part begins after a backward pass or an optimizer's step, and ends with the next one. The phases within it that
``Clock.enter`` began, such as an exchange, wait for other reasons and do not count.
"""

import resource
from typing import NamedTuple, Optional

from .clock import FORWARD, INPUT, OTHER, Clock
from .loading import Counters, Loading, Work

_LEAST_BYTES = 4096  # a thread that reads less reads no data


class _Start(NamedTuple):
    wall: int
    cpu: int
    queued: int
    bytes: int
    faults: int
    forward: int
    other: int


class Reading:
    """Of the training thread, which calls the methods."""

    def __init__(self, clock: Clock, loading: Loading) -> None:
        self._clock = clock
        self._loading = loading
        self._counters: Optional[Counters] = None
        self._start: Optional[_Start] = None

    def begin(self) -> None:
        """A part of a step begins."""
        if self._counters is None:
            self._counters = Counters(io="/proc/thread-self/io")
        self._start = self._now(self._counters)

    def end(self) -> None:
        """The part ends."""
        start, self._start = self._start, None
        if start is None or self._counters is None:
            return
        now = self._now(self._counters)
        if now.bytes - start.bytes < _LEAST_BYTES and now.faults == start.faults:
            return
        forward, other = now.forward - start.forward, now.other - start.other
        wall = now.wall - start.wall
        running = now.cpu - start.cpu + now.queued - start.queued
        blocked = min(forward + other, wall - running - (wall - forward - other))
        if blocked <= 0:
            return
        of_forward = blocked * forward // (forward + other)
        self._clock.move(FORWARD, INPUT, of_forward)
        self._clock.move(OTHER, INPUT, blocked - of_forward)
        self._loading.add(Work(1, blocked, 0, 0, max(0, now.bytes - start.bytes)))

    def _now(self, counters: Counters) -> _Start:
        counts = counters.read()
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        return _Start(*counts, faults, self._clock.total(FORWARD), self._clock.total(OTHER))
