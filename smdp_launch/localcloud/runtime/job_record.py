"""The state of one job as its supervisor writes it, each change at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from smdp_launch.disk import is_full
from smdp_launch.localcloud import job_state
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.runtime import reserve
from smdp_launch.localcloud.runtime.outcome import Ending

_RETRY_INTERVAL = 1.0  # seconds between tries to write the end of a job to a full disk


class JobRecord:
    """The supervisor is its only writer while the supervisor lives."""

    def __init__(self, folder: JobFolder) -> None:
        state = job_state.read(folder.state)
        if state is None:
            raise FileNotFoundError(folder.state)
        self.state = state
        self._folder = folder

    def enter(self, secondary: str, message: str) -> None:
        self.state.enter(secondary, message, time.time())
        self._write()

    def explain(self, message: str) -> None:
        self.state.explain(message, time.time())
        self._write()

    def end(self, ending: Ending, metrics: Sequence[dict[str, Any]]) -> None:
        """Write the end of the job. Retries while the disk is full: only the supervisor knows how the job ended."""
        self.state.metrics = list(metrics)
        now = time.time()
        if ending.failure is not None:
            self.state.fail(ending.failure, now)
        else:
            self.state.end(ending.status, ending.secondary, ending.message, now)
        while True:
            try:
                self._write()
            except OSError as error:
                if not is_full(error):
                    raise
                time.sleep(_RETRY_INTERVAL)
            else:
                self._folder.reserve.unlink(missing_ok=True)
                return

    def _write(self) -> None:
        reserve.write(self._folder, lambda: job_state.write(self._folder.state, self.state))
