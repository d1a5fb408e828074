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


def hang_reported(host: str, at: float, **ranks: tuple[str, str, list[int]]) -> Event:
    """The event of a host.

    Args:
        ranks: by ``rank_N``: the phase, what it does, and the ranks that it waits for.
    """
    fields = [
        {"rank": int(name.removeprefix("rank_")), "idle_s": 60.0, "phase": phase, "doing": doing, "waits_for": others}
        for name, (phase, doing, others) in ranks.items()
    ]
    return ("hang", {"what": "reported", "limit": 60.0, "ranks": fields}, host, None, at)


#: Rank 2 of two hosts with two ranks each hangs in its script, and the other ranks wait for it.
_WAITS = ("exchange", "waits for rank 2 in all_reduce", [2])
HANG: list[Event] = [
    hang_reported("algo-1", BEGAN + 110, rank_0=_WAITS, rank_1=_WAITS),
    hang_reported("algo-2", BEGAN + 110, rank_2=("forward", "is in forward at load (data.py:14)", []), rank_3=_WAITS),
]


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
