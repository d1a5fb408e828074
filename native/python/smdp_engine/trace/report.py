"""The summary of timelines, as text of at most 80 columns."""

from collections import defaultdict
from pathlib import Path
from typing import Dict, Iterable, List, Tuple

from .clocks import aligned
from .lateness import Late, calls, late_ranks
from .timelines import Operation, Timeline, read_timelines

WIDTH = 80
_MOST_ROWS = 16


def summary(paths: Iterable[Path]) -> str:
    """The late ranks with their delays, and the share of each phase in the time of operations by size.

    Late ranks are found among the drawn operations; the shares are of all operations.

    Raises:
        TraceError: a file is not a timeline.
    """
    timelines = read_timelines(paths)
    moved, errors = aligned(timelines)
    lines = [*_headline(timelines, errors), "", *_late_table(moved, errors), "", *_shares(timelines)]
    return "\n".join(_printable(line)[:WIDTH] for line in lines)


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in line)


def _headline(timelines: List[Timeline], errors: Dict[int, float]) -> List[str]:
    ranks, hosts = {timeline.rank for timeline in timelines}, {timeline.host for timeline in timelines}
    drawn = sum(len(timeline.operations) for timeline in timelines)
    all_operations = sum(total["operations"] for timeline in timelines for total in timeline.totals.values())
    where = f"{len(ranks)} of {timelines[0].world_size} ranks, {len(hosts)} hosts"
    lines = [f"{where}; {drawn:,} of {all_operations:,.0f} operations drawn"]
    worst = max(errors.values())
    if worst == float("inf"):
        lost = ", ".join(str(rank) for rank, error in errors.items() if error == worst)
        lines.append(f"clocks: unknown for rank {lost}, placed by wall clock and never reported late")
    else:
        lines.append(f"clocks: error at most {worst:.0f} us")
    dropped = sum(timeline.dropped for timeline in timelines)
    if dropped:
        lines.append(f"{dropped:,} events did not fit: increase SMDP_TIMELINE_MIB")
    return lines


def _late_table(timelines: List[Timeline], errors: Dict[int, float]) -> List[str]:
    by_rank: Dict[int, List[Tuple[Late, Operation]]] = defaultdict(list)
    for ranks in calls(timelines).values():
        for late in late_ranks(ranks, errors):
            by_rank[late.rank].append((late, next(operation for operation in ranks if operation.rank == late.rank)))
    if not by_rank:
        return ["No rank was late."]
    hosts = {timeline.rank: timeline.host for timeline in timelines}
    rows = sorted(by_rank.items(), key=lambda item: -sum(late.by for late, _ in item[1]))
    lines = [f"{'late rank':<10}{'host':<20}{'times':>7}{'seconds':>10}{'worst ms':>10}  in"]
    for rank, times in rows[:_MOST_ROWS]:
        worst, operation = max(times, key=lambda pair: pair[0].by)
        total = sum(late.by for late, _ in times) / 1e6
        where = f"{operation.name}, {operation.key[1]}"
        lines.append(f"{rank:<10}{hosts[rank][:19]:<20}{len(times):>7}{total:>10.3f}{worst.by / 1e3:>10.2f}  {where}")
    if len(rows) > _MOST_ROWS:
        lines.append(f"... and {len(rows) - _MOST_ROWS} more ranks")
    return lines


def _shares(timelines: List[Timeline]) -> List[str]:
    sums: Dict[int, Dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for timeline in timelines:
        for size_class, total in timeline.totals.items():
            for key, value in total.items():
                sums[size_class][key] += value
    lines = [f"{'bytes':<15}{'operations':>11}{'mean ms':>10}" + "".join(f"{name:>11}" for name in _COLUMNS)]
    return lines + [_row(size_class, one) for size_class, one in sorted(sums.items())]


_COLUMNS = {
    "wait": ("wait_local_us", "wait_hosts_us"),
    "copy": ("copy_us",),
    "reduce": ("reduce_us",),
    "wire": ("wire_us",),
}


def _row(size_class: int, one: Dict[str, float]) -> str:
    whole = max(one["took_us"], 1e-9)
    shares = "".join(f"{sum(one[key] for key in keys) / whole:>11.1%}" for keys in _COLUMNS.values())
    return (
        f"{_sizes(size_class):<15}{one['operations']:>11,.0f}{whole / max(one['operations'], 1) / 1e3:>10.3f}{shares}"
    )


def _sizes(size_class: int) -> str:
    """Class n holds 2^(n-1) to 2^n - 1 bytes."""
    if size_class == 0:
        return "none"
    low = 1 << (size_class - 1)
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if low >= unit:
            return f"{low // unit} {name} up"
    return f"{low} B up"
