"""The thread that writes the event `resources` while the workers run.

A thread of its own, since the supervising loop must act on a stop signal at once and the files of a network file
system or a broken GPU can block their reader.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from smdp_entrypoint.resources.sampler import Sampler

# The GPUs report their use of the last second.
_GPU_INTERVAL_S = 1.0
# A shorter interval would only fill the log.
_SHORTEST_S = 0.1
# The job's exit does not wait longer for the last event.
_LAST_S = 2.0


class Recorder:
    """Writes an event through `event` each `interval` seconds, and one at the end. `interval` 0: none at all.

    `create` makes the sampler in the thread. `say` gets one message if the measurement fails, which never ends the job.
    """

    def __init__(
        self,
        interval: float,
        create: Callable[[], Sampler],
        event: Callable[..., None],
        say: Callable[[str], None],
    ) -> None:
        self._interval = max(interval, _SHORTEST_S) if interval else 0.0
        self._create = create
        self._event = event
        self._say = say
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if not self._interval:
            return
        thread = threading.Thread(target=self._run, name="resources", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the container's limit of processes
            self._give_up(error)
        else:
            self._thread = thread

    def finish(self) -> None:
        """Write the last event, within two seconds."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def _run(self) -> None:
        try:
            sampler = self._create()
            is_last = False
            while not is_last:
                is_last = self._await_next(sampler)
                self._event("resources", **sampler.sample())
        except Exception as error:
            self._give_up(error)

    def _await_next(self, sampler: Sampler) -> bool:
        """Wait until the next event is due; return whether it is the last one."""
        due = time.monotonic() + self._interval
        while not self._over.wait(min(_GPU_INTERVAL_S, max(0.0, due - time.monotonic()))):
            if time.monotonic() >= due:
                return False
            sampler.watch_gpus()
        return True

    def _give_up(self, error: Any) -> None:
        self._say(f"the resources of this host are not measured: {type(error).__name__}: {error}")
