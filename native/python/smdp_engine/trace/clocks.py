"""One clock for all ranks: rank 0's."""

from dataclasses import replace
from typing import Dict, List, Tuple

from .timelines import Clock, Operation, Timeline


def aligned(timelines: List[Timeline]) -> Tuple[List[Timeline], Dict[int, float]]:
    """The timelines in rank 0's clock, and by rank by how many microseconds its times may be off.

    Ranks of rank 0's host share its clock. The others asked for it every 30 s; between two answers the difference is
    taken to change evenly. A rank whose questions were never answered is placed by its wall clock, and its error is
    infinite.
    """
    reference = next((one for one in timelines if one.rank0_clock), None)
    return (
        [_shifted(one, _clocks(one, reference)) for one in timelines],
        {one.rank: _error(one) for one in timelines},
    )


def _error(timeline: Timeline) -> float:
    if timeline.rank0_clock:
        return 0.0
    return max((clock.error for clock in timeline.clocks), default=float("inf"))


def _clocks(timeline: Timeline, reference: "Timeline | None") -> List[Clock]:
    if timeline.clocks or timeline.rank0_clock or reference is None:
        return timeline.clocks
    return [Clock(0.0, timeline.wall_minus_clock - reference.wall_minus_clock, float("inf"))]


def ahead(clocks: List[Clock], at: float) -> float:
    """How far rank 0's clock is ahead at a time of the rank's own; microseconds."""
    if not clocks:
        return 0.0
    later = next((place for place, clock in enumerate(clocks) if clock.at > at), len(clocks))
    if later in {0, len(clocks)}:
        return clocks[min(later, len(clocks) - 1)].ahead
    before, after = clocks[later - 1], clocks[later]
    share = (at - before.at) / (after.at - before.at)
    return before.ahead + share * (after.ahead - before.ahead)


def _shifted(timeline: Timeline, clocks: List[Clock]) -> Timeline:
    return replace(timeline, operations=[_moved(one, ahead(clocks, one.begin)) for one in timeline.operations])


def _moved(operation: Operation, by: float) -> Operation:
    return replace(
        operation,
        called=operation.called + by,
        begin=operation.begin + by,
        end=operation.end + by,
        stretches=[{**stretch, "ts": stretch["ts"] + by} for stretch in operation.stretches],
    )
