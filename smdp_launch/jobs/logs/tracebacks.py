"""Python tracebacks in the log lines of a job's workers: which rank failed first, and its traceback."""

from __future__ import annotations

from dataclasses import dataclass, field

from smdp_launch.jobs.logs.messages import JobEvent, LogLine

_START = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MOST_LINES = 200

Worker = tuple[str, int]  # host and rank


@dataclass
class Tracebacks:
    """Observes the events of a followed job, and keeps the last traceback of each worker."""

    _last: dict[Worker, list[str]] = field(default_factory=dict)
    _open: set[Worker] = field(default_factory=set)
    _failed: dict[Worker, float] = field(default_factory=dict)

    def observe(self, event: object) -> None:
        if isinstance(event, LogLine) and event.rank is not None:
            self._line((event.host, event.rank), event.text)
        elif isinstance(event, JobEvent) and event.name == "worker_exit":
            rank, began = event.fields.get("rank"), event.fields.get("time")
            if isinstance(rank, int) and isinstance(began, int | float):
                self._failed.setdefault((event.host, rank), float(began))

    @property
    def first(self) -> tuple[Worker, tuple[str, ...]] | None:
        """The worker that failed first, and its traceback; None if no worker failed with a traceback."""
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
