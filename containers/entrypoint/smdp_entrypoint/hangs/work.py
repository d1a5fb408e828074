"""Which workers compute although they make no progress, such as one that exports its model after the last step."""

from __future__ import annotations

import os
from typing import Collection

from smdp_entrypoint.resources.process_trees import cpu_seconds
from smdp_entrypoint.resources.system_files import SystemFiles

_INTERVAL_S = 5.0
# A worker that waits needs less than a hundredth of a core, also if its engine keeps connections alive.
_BUSY_CORES = 0.05


class Work:
    """Measures the processor time of workers, given by process ID."""

    def __init__(self, files: SystemFiles | None = None) -> None:
        self._files = files or SystemFiles()
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._at = 0.0
        self._seconds: dict[int, float] = {}
        self._busy: dict[int, bool] = {}

    def watch(self, workers: Collection[int], now: float) -> None:
        """Call it in each turn: it measures at intervals, as long as there are workers to watch."""
        if not workers:
            self._seconds, self._busy = {}, {}
        elif not self._seconds or now - self._at >= _INTERVAL_S:
            seconds = cpu_seconds(self._files, workers, self._ticks)
            least = _BUSY_CORES * (now - self._at)
            self._busy = {pid: seconds[pid] - self._seconds[pid] >= least for pid in seconds if pid in self._seconds}
            self._at, self._seconds = now, seconds

    def is_busy(self, worker: int) -> bool:
        """Whether it has used the processor in the last interval. A worker counts as busy until it is measured."""
        return self._busy.get(worker, True)
