"""Merges the timelines of all ranks into one Chrome trace, with one clock and marks for late ranks."""

import json
from pathlib import Path
from typing import Dict, Iterable, Iterator, List

from .clocks import aligned
from .lateness import Late, calls, late_ranks
from .timelines import Event, Operation, Timeline, read_timelines

LATE_LANE = 1000  # the row of a rank's own lateness, below its operations
_WAITS = {"wait local", "wait hosts"}


def merge(out: Path, paths: Iterable[Path]) -> int:
    """Write the trace of all ranks to ``out`` and return the number of its events.

    For each operation that a rank called late, the trace has a bar in that rank's row "late", and the waits of the
    other ranks in that operation have the name "wait for rank N". Open it at chrome://tracing or ui.perfetto.dev.

    Raises:
        TraceError: a file is not a timeline.
        OSError: ``out`` cannot be written.
    """
    events = merged_events(read_timelines(paths))
    with out.open("w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(event, allow_nan=False) for event in events) + "\n]\n")
    return len(events)


def merged_events(timelines: List[Timeline]) -> List[Event]:
    """The events of the merged trace; times are microseconds since its first call."""
    timelines, errors = aligned(timelines)
    zero = min((one.called for timeline in timelines for one in timeline.operations), default=0.0)
    names = {timeline.rank: f"rank {timeline.rank}@{timeline.host}" for timeline in timelines}
    bars: List[Event] = []
    late_bars: Dict[int, List[Event]] = {timeline.rank: [] for timeline in timelines}
    for ranks in calls(timelines).values():
        late = late_ranks(ranks, errors)
        bars.extend(event for one in ranks for event in _bars(one, late, names))
        for one in late:
            late_bars[one.rank].append(_late_bar(one, next(r for r in ranks if r.rank == one.rank)))
    metadata = [event for timeline in timelines for event in timeline.names]
    for rank, own in late_bars.items():
        bars.extend(_without_overlap(own))
        metadata += _row_names(rank, bool(own))
    bars.sort(key=lambda event: (event["ts"], -event["dur"]))
    return metadata + [{**event, "ts": round(event["ts"] - zero, 3)} for event in bars]


def _bars(operation: Operation, late: List[Late], names: Dict[int, str]) -> Iterator[Event]:
    yield {
        "name": operation.name + (" (failed)" if operation.failed else ""),
        "cat": "operation",
        "ph": "X",
        "pid": operation.rank,
        "tid": operation.lane,
        "ts": operation.begin,
        "dur": round(operation.end - operation.begin, 3),
        "args": {
            "group": operation.group,
            "operation": operation.key[1],
            "bytes": operation.size,
            "queued_us": round(operation.begin - operation.called, 3),
            **{f"{phase}_us": took for phase, took in operation.phases.items()},
        },
    }
    for stretch in operation.stretches:
        culprit = next((one for one in late if one.rank != operation.rank), None)
        if culprit is not None and stretch["name"] in _WAITS and stretch["ts"] < culprit.called:
            yield {**stretch, "name": f"wait for {names[culprit.rank]}", "cat": "wait"}
        else:
            yield stretch


def _late_bar(late: Late, operation: Operation) -> Event:
    return {
        "name": f"late for {operation.name}",
        "cat": "late",
        "ph": "X",
        "pid": late.rank,
        "tid": LATE_LANE,
        "ts": late.since,
        "dur": round(late.by, 3),
        "args": {"group": operation.group, "operation": operation.key[1]},
    }


def _without_overlap(bars: List[Event]) -> Iterator[Event]:
    """The bars of a row without overlap, which viewers do not allow: each begins at or after the end of the one
    before."""
    until = float("-inf")
    for bar in sorted(bars, key=lambda event: event["ts"] + event["dur"]):
        begin, end = max(bar["ts"], until), bar["ts"] + bar["dur"]
        until = end
        if end > begin:
            yield {**bar, "ts": begin, "dur": round(end - begin, 3)}


def _row_names(rank: int, late: bool) -> List[Event]:
    order = {"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}}
    row = {"name": "thread_name", "ph": "M", "pid": rank, "tid": LATE_LANE, "args": {"name": "late"}}
    return [order, row] if late else [order]
