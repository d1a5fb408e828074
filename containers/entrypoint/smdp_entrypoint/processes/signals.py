"""Stop signals and the wake-up of the event loop.

During preparation a stop signal raises `StopRequested` in the main thread, also inside a download, a name look-up or a
subprocess. Once workers run, the handler only records the signal with its time, and the loop acts on it: an exception
inside the loop could lose track of a worker. The signal that reports another host's failure is handled in the same way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

from smdp_entrypoint.contract.errors import OthersFailed, StopRequested
from smdp_entrypoint.processes import early_stops

# The control channel's thread sends this signal to the main thread when `ending` or `verdict` is set.
PEER_FAILURE_SIGNAL = signal.SIGUSR1

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`stops` has (signal number, monotonic time) of each stop signal so far; `wakeup` becomes readable when a signal
    arrives, SIGCHLD included; `others_failed`: whether another host has reported a failure."""

    def __init__(self) -> None:
        self.stops: list[tuple[int, float]] = []
        self.others_failed = False
        self.wakeup, self._wakeup_end = os.pipe()
        for fd in (self.wakeup, self._wakeup_end):
            os.set_blocking(fd, False)
        self._raising = True

    def install(self) -> None:
        """Raises StopRequested if a stop signal has arrived before."""
        signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        for signum in STOP_SIGNALS:
            signal.signal(signum, self._note)
        signal.signal(PEER_FAILURE_SIGNAL, self._note_others)
        # Python wakes the descriptor only for signals that have a handler.
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        self.stops[:0] = early_stops.received
        self.raise_deferred()

    def defer(self) -> None:
        """From here on a stop signal is recorded and does not raise."""
        self._raising = False

    def raise_deferred(self) -> None:
        """Reverse `defer`; raises at once for a signal that arrived in between."""
        self._raising = True
        if self.stops:
            raise StopRequested(self.stops[0][0])
        if self.others_failed:
            raise OthersFailed

    def arrived(self) -> set[int]:
        """The numbers of the signals that arrived since the last call; empties `wakeup`."""
        numbers: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                numbers.update(os.read(self.wakeup, 4096))
        return numbers

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.stops.append((signum, time.monotonic()))
        if self._raising:
            raise StopRequested(signum)

    def _note_others(self, signum: int, frame: FrameType | None) -> None:
        self.others_failed = True
        if self._raising:
            raise OthersFailed
