"""Events of a run with a known cause, as `RunMetrics` and as the lines of a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smdp_launch.run_metrics.run import PHASES, RunMetrics

#: Name, fields, host, rank, time.
Event = tuple[str, dict[str, Any], str, int | None, float]

#: Fields of a ``timing`` event in which phases (``input``, ``forward`` and so on) are seconds of one step.
Step = Mapping[str, float]

BEGAN = 1_790_000_000.0
WINDOW = 5.0


def run_events(
    steps: Callable[[int], Step],
    *,
    world_size: int = 4,
    per_host: int = 2,
    windows: int = 10,
    resources: Mapping[str, Any] | None = None,
) -> list[Event]:
    """Events of a run whose ranks take ``steps(rank)``; the same seconds a step on all ranks.

    Args:
        resources: fields of the ``resources`` events; none are sent without it.
    """
    hosts = [f"algo-{1 + index}" for index in range((world_size + per_host - 1) // per_host)]
    events: list[Event] = [("workers_started", {"world_size": world_size}, "algo-1", None, BEGAN)]
    for window in range(windows):
        at = BEGAN + WINDOW * (window + 1)
        for rank in range(world_size):
            events.append(("timing", {"rank": rank, **_timing(steps(rank))}, hosts[rank // per_host], rank, at))
        if resources is not None:
            events += [("resources", {"host": host, "window": WINDOW, **resources}, host, None, at) for host in hosts]
    return events


def _timing(step: Step) -> dict[str, float]:
    seconds = sum(value for name, value in step.items() if name in PHASES)
    count = WINDOW / seconds
    phases = {f"{name}_s": step.get(name, 0.0) * count for name in PHASES}
    # The loader's numbers are of one batch.
    loader = {
        name: value * count for name, value in step.items() if name.startswith("load_") and name != "load_workers"
    }
    workers = {"load_workers": int(step["load_workers"])} if "load_workers" in step else {}
    return {"window": WINDOW, "steps": count, "batches": count, **phases, **loader, **workers}


def metrics_of(events: Sequence[Event]) -> RunMetrics:
    metrics = RunMetrics()
    for event in events:
        metrics.add(*event)
    return metrics


def log_lines(events: Sequence[Event]) -> list[str]:
    """The lines as the entrypoint writes them."""
    lines = []
    for name, fields, host, rank, at in events:
        prefix = host if rank is None else f"{host}:{rank}"
        lines.append(f"[{prefix}] " + json.dumps({"smdp_event": 1, "event": name, "time": at, **fields}))
    return lines
