"""Records stop signals from the start of the command until `Signals` handles them.

The kernel discards a signal to process 1 of a container while that process has no handler for it, and the imports of
the other modules take a while. So this module imports little.
"""

import signal
import time

#: The number and the monotonic time of each signal.
received: "list[tuple[int, float]]" = []


def record_stops() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, frame: received.append((number, time.monotonic())))
