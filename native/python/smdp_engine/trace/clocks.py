"""Converts the times of all ranks to rank 0's clock."""

from dataclasses import replace
from typing import Dict, List, Tuple

from .timelines import Clock, Operation, Timeline


def aligned(timelines: List[Timeline]) -> Tuple[List[Timeline], Dict[int, float]]:
    """The timelines in rank 0's clock, and the maximum error of each rank's times in microseconds.

    Ranks on rank 0's host share its clock. The other ranks measured the difference every 30 s; it is interpolated
    linearly between two measurements. A rank without measurements is placed by its wall clock, with an infinite error.
    """
    reference = next((timeline for timeline in timelines if timeline.rank0_clock), None)
    return (
        [_shifted(timeline, _clocks(timeline, reference)) for timeline in timelines],
        {timeline.rank: _error(timeline) for timeline in timelines},
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
    """The microseconds by which rank 0's clock is ahead, at a time of the rank's own clock."""
    if not clocks:
        return 0.0
    later = next((place for place, clock in enumerate(clocks) if clock.at > at), len(clocks))
    if later in {0, len(clocks)}:
        return clocks[min(later, len(clocks) - 1)].ahead
    before, after = clocks[later - 1], clocks[later]
    share = (at - before.at) / (after.at - before.at)
    return before.ahead + share * (after.ahead - before.ahead)


def _shifted(timeline: Timeline, clocks: List[Clock]) -> Timeline:
    moved = [_moved(operation, ahead(clocks, operation.begin)) for operation in timeline.operations]
    return replace(timeline, operations=moved)


def _moved(operation: Operation, by: float) -> Operation:
    return replace(
        operation,
        called=operation.called + by,
        begin=operation.begin + by,
        end=operation.end + by,
        stretches=[{**stretch, "ts": stretch["ts"] + by} for stretch in operation.stretches],
    )
