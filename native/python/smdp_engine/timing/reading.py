"""What a script without a loader reads in its training thread: the wait for the storage is input too.

Such a script, for example one that maps its data into memory, reads between the passes, anywhere. The system counts
for the thread how long it ran, how long it waited for a CPU, which bytes it read, and how often an access to a mapped
file waited for the storage. In a part of a step in which the thread has read, the rest of the time is the wait.

A part begins after a backward pass or an optimizer's step, and ends with the next one. The phases within it that
``Clock.enter`` began, such as an exchange, wait for other reasons and do not count.
"""

from typing import Optional, Tuple

from .clock import FORWARD, INPUT, OTHER, Clock
from .loader_work import Counters, Loading, Work

_LEAST_BYTES = 4096  # a thread that reads less reads no data


#: Time, time on a CPU, time in the queue, bytes, faults, and the clock's totals of FORWARD and OTHER.
_Moment = Tuple[int, int, int, int, int, int, int]


class Reading:
    """Of the training thread, which calls the methods."""

    def __init__(self, clock: Clock, loading: Loading) -> None:
        self._clock = clock
        self._loading = loading
        self._counters: Optional[Counters] = None
        self._start: Optional[_Moment] = None

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
        moments = zip(self._now(self._counters), start)
        wall, cpu, queued, count, faults, forward, other = (now - then for now, then in moments)
        if count < _LEAST_BYTES and not faults:
            return
        blocked = min(forward + other, wall - cpu - queued - (wall - forward - other))
        if blocked <= 0:
            return
        of_forward = blocked * forward // (forward + other)
        self._clock.move(FORWARD, INPUT, of_forward)
        self._clock.move(OTHER, INPUT, blocked - of_forward)
        self._loading.add(Work(1, blocked, 0, 0, max(0, count)))

    def _now(self, counters: Counters) -> _Moment:
        clock = self._clock
        return (*counters.read_with_faults(), clock.total(FORWARD), clock.total(OTHER))
