"""Finds the ranks that called an operation late, by comparing all ranks."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, Iterable, List, Tuple

from .timelines import Operation, Timeline

# Smaller delays do not count as late; microseconds.
TOLERANCE_US = 100.0

Call = Tuple[int, str, str]  # number of the engine in its process, group, operation


@dataclass
class Late:
    """The rank called ``by`` microseconds after the group's (lower) median rank, which called at ``since``."""

    rank: int
    since: float
    by: float

    @property
    def called(self) -> float:
        return self.since + self.by


def calls(timelines: Iterable[Timeline]) -> Dict[Call, List[Operation]]:
    """The operations of all ranks for each call."""
    operations: Dict[Call, List[Operation]] = defaultdict(list)
    for timeline in timelines:
        for operation in timeline.operations:
            operations[timeline.engine, operation.key[0], operation.key[1]].append(operation)
    return operations


def late_ranks(ranks: List[Operation], errors: Dict[int, float]) -> List[Late]:
    """The ranks of a call that were late by more than the clocks' error, the latest first."""
    called = sorted(operation.called for operation in ranks)
    since = called[(len(called) - 1) // 2]
    threshold = TOLERANCE_US + 2 * max(errors.get(operation.rank, 0.0) for operation in ranks)
    late = [Late(operation.rank, since, operation.called - since) for operation in ranks]
    return sorted((one for one in late if one.by > threshold), key=lambda one: one.by, reverse=True)
