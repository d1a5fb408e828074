"""Python tracebacks in the lines of a job's workers: which rank failed first, and what it said."""

from __future__ import annotations

from dataclasses import dataclass, field

from smdp_launch.jobs.logs.messages import JobEvent, LogLine

_START = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MOST_LINES = 200

Worker = tuple[str, int]  # host and rank


@dataclass
class Tracebacks:
    """Sees all that is followed of a job, and keeps the last traceback of each worker."""

    _last: dict[Worker, list[str]] = field(default_factory=dict)
    _open: set[Worker] = field(default_factory=set)
    _failed: dict[Worker, float] = field(default_factory=dict)

    def see(self, seen: object) -> None:
        if isinstance(seen, LogLine) and seen.rank is not None:
            self._line((seen.host, seen.rank), seen.text)
        elif isinstance(seen, JobEvent) and seen.name == "worker_exit":
            rank, began = seen.fields.get("rank"), seen.fields.get("time")
            if isinstance(rank, int) and isinstance(began, int | float):
                self._failed.setdefault((seen.host, rank), float(began))

    @property
    def first(self) -> tuple[Worker, tuple[str, ...]] | None:
        """The worker that failed first, and its traceback; None where none failed, or without one."""
        failed = [one for one in self._failed if one in self._last]
        if not failed:
            return None
        worker = min(failed, key=lambda one: self._failed[one])
        return worker, tuple(self._last[worker])

    def _line(self, worker: Worker, text: str) -> None:
        if text == _START:
            if not self._is_chained(worker):
                self._last[worker] = []
            self._open.add(worker)
        elif worker not in self._open:
            if text.startswith(_CHAINED) and worker in self._last:
                self._keep(worker, text)
            return
        elif text and not text.startswith(" "):
            self._open.discard(worker)  # the exception itself, its last line
        self._keep(worker, text)

    def _is_chained(self, worker: Worker) -> bool:
        return bool(self._last.get(worker)) and self._last[worker][-1].startswith(_CHAINED)

    def _keep(self, worker: Worker, text: str) -> None:
        if len(self._last[worker]) < _MOST_LINES:
            self._last[worker].append(text)
