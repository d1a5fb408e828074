"""Who called late: what only the ranks together show."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, Iterable, List, Tuple

from .timelines import Operation, Timeline

# A rank this much behind the others is nobody's concern; microseconds.
TOLERANCE_US = 100.0

Call = Tuple[int, str, str]  # which engine of the process, group, operation


@dataclass
class Late:
    """A rank called ``by`` microseconds after the group's (lower) median rank, which called at ``since``."""

    rank: int
    since: float
    by: float

    @property
    def called(self) -> float:
        return self.since + self.by


def calls(timelines: Iterable[Timeline]) -> Dict[Call, List[Operation]]:
    """The operations of all ranks by the call they belong to."""
    found: Dict[Call, List[Operation]] = defaultdict(list)
    for timeline in timelines:
        for operation in timeline.operations:
            found[timeline.engine, operation.key[0], operation.key[1]].append(operation)
    return found


def late_ranks(ranks: List[Operation], errors: Dict[int, float]) -> List[Late]:
    """Those of one call that were late beyond the clocks' error, the latest first."""
    called = sorted(one.called for one in ranks)
    since = called[(len(called) - 1) // 2]
    least_error = 2 * max(errors.get(one.rank, 0.0) for one in ranks)
    late = [Late(one.rank, since, one.called - since) for one in ranks]
    return sorted((one for one in late if one.by > TOLERANCE_US + least_error), key=lambda one: one.by, reverse=True)
