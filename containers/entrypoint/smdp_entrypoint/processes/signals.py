"""Stop signals and the wake-up of the event loop.

While the job is being prepared a stop signal raises `StopRequested` wherever the main thread is: in a download, a
name look-up, a subprocess. Once workers run, signals are only noted with their time, and the loop acts on them: an
exception in the middle of its book-keeping could lose a worker. The same goes for the news that another host failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

from smdp_entrypoint.contract.errors import OthersFailed, StopRequested

# Sent to our own main thread when `ending` or `verdict` was set.
NEWS = signal.SIGUSR1

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`stops` holds (signal number, monotonic time) of each stop signal so far; `wakeup` becomes readable
    whenever a signal arrives, SIGCHLD included; `others_failed` says whether there was news of another host."""

    def __init__(self) -> None:
        self.stops: list[tuple[int, float]] = []
        self.others_failed = False
        self.wakeup, self._wakeup_end = os.pipe()
        for fd in (self.wakeup, self._wakeup_end):
            os.set_blocking(fd, False)
        self._raising = True

    def install(self) -> None:
        signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        for signum in STOP_SIGNALS:
            signal.signal(signum, self._note)
        signal.signal(NEWS, self._note_others)
        # Python wakes the descriptor only for signals that have a handler.
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)

    def only_note(self) -> None:
        """From here on a stop signal is noted and does not raise."""
        self._raising = False

    def raise_again(self) -> None:
        """The opposite of `only_note`; raises at once for a signal that came meanwhile."""
        self._raising = True
        if self.stops:
            raise StopRequested(self.stops[0][0])
        if self.others_failed:
            raise OthersFailed

    def arrived(self) -> set[int]:
        """The numbers of the signals that came since the last call; makes `wakeup` unreadable again."""
        found: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                found.update(os.read(self.wakeup, 4096))
        return found

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.stops.append((signum, time.monotonic()))
        if self._raising:
            raise StopRequested(signum)

    def _note_others(self, signum: int, frame: FrameType | None) -> None:
        self.others_failed = True
        if self._raising:
            raise OthersFailed
