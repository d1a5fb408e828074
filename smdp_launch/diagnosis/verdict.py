"""The verdict: what holds a job back, how sure that is, and what its removal would gain at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from smdp_launch.diagnosis.blame import CAUSES, INPUT, Blame, Slowest, blame_job, blame_rank
from smdp_launch.diagnosis.loading import Loading, loading
from smdp_launch.diagnosis.period import HostPeriod, Period, RankPeriod, period
from smdp_launch.run_metrics.hangs import Hang
from smdp_launch.run_metrics.run import RunMetrics

UNKNOWN = "unknown"
#: The job makes no progress, so nothing limits its speed.
HANG = "hang"
#: A cause that takes less than this share of the time does not hold the job back.
LEAST = 0.1
#: Distance to the next cause and number of windows from which a verdict is sure.
_HIGH = (0.15, 6)
_MEDIUM = (0.05, 3)
#: The input's cause is not clear if its figures are nearer to another one than this.
_CLEAR = 0.2
#: A loader that delivers this share of what it can deliver never waits for a place in its queue.
_NO_PAUSE = 0.9


@dataclass(frozen=True)
class WorkerVerdict:
    """Of one rank.

    Args:
        shares: of its time by cause; they sum to 1.
        phases: seconds a step of the training thread by phase.
        own_s: seconds a step without waiting for exchanges.
        loading: what loading a batch costs.
    """

    rank: int
    host: str
    cause: str
    shares: Mapping[str, float]
    phases: Mapping[str, float]
    step_s: float
    own_s: float
    loading: Loading


@dataclass(frozen=True)
class Verdict:
    """Of a job.

    Args:
        cause: one of ``CAUSES``, ``hang`` or ``unknown``.
        share: of the time, 0 to 1.
        seconds: a step that the cause takes.
        gain: throughput without the cause, as a factor of the present one; at most.
        sure: ``high``, ``medium`` or ``low``.
        shares: of the time by cause, for ``hang`` before it; they sum to 1, or are empty without a step.
        step_s: seconds a step.
        windows: the fewest ``timing`` events of a rank.
        ranks: that are slow, for ``slow_worker`` and ``slow_host``; that the others wait for, for ``hang``.
        spends: the phase that the slow ranks spend more time in.
        workers: by rank.
        missing: what the events lack; sentences.
        silent: ranks that sent no times of a step.
        hang: that has been reported and is not over.
    """

    cause: str
    share: float = 0.0
    seconds: float = 0.0
    gain: float = 1.0
    sure: str = "low"
    shares: Mapping[str, float] = field(default_factory=dict)
    step_s: float | None = None
    steps: int = 0
    seconds_read: float = 0.0
    warm_up: float = 0.0
    windows: int = 0
    ranks: tuple[int, ...] = ()
    host: str | None = None
    spends: str | None = None
    slowest: Slowest | None = None
    loading: Loading | None = None
    workers: tuple[WorkerVerdict, ...] = ()
    hosts: Mapping[str, HostPeriod] = field(default_factory=dict)
    late: Mapping[int, float] = field(default_factory=dict)
    bytes_s: float = 0.0
    bytes_step: float = 0.0
    missing: tuple[str, ...] = ()
    silent: tuple[int, ...] = ()
    hang: Hang | None = None

    @property
    def is_of_speed(self) -> bool:
        """Whether the cause is one of ``CAUSES``."""
        return self.cause not in (HANG, UNKNOWN)


def diagnose(metrics: RunMetrics) -> Verdict:
    """What holds the job back. Does not fail for any numbers."""
    speed, hang = _diagnose_speed(metrics), metrics.hang
    if hang is None:
        return speed
    return replace(
        speed,
        cause=HANG,
        share=0.0,
        seconds=0.0,
        gain=1.0,
        sure="high",
        ranks=tuple(one.rank for one in hang.ranks),
        host=hang.ranks[0].host,
        spends=None,
        hang=hang,
    )


def _diagnose_speed(metrics: RunMetrics) -> Verdict:
    """What limits the speed in the steady part of the run, which is before a hang."""
    read = period(metrics)
    if not read.ranks:
        return Verdict(UNKNOWN, missing=_missing_steps(metrics), silent=tuple(read.silent))
    per_host = Counter(one.host for one in read.ranks)
    loads = {one.rank: loading(one, read.hosts.get(one.host), per_host[one.host]) for one in read.ranks}
    batch_s = [one.batch_s / max(one.workers or 0, 1) if one.batch_s is not None else None for one in loads.values()]
    no_pause = all(_without_pause(one, loads[one.rank]) for one in read.ranks)
    alone = len(read.ranks) + len(read.silent) == 1
    job = blame_job(read.ranks, _input_cause(read.ranks, loads), batch_s, no_pause=no_pause, alone=alone)
    workers = tuple(_worker(one, loads[one.rank], job, alone=alone) for one in read.ranks)
    shares = job.shares()
    cause = _greatest(shares)
    slow = job.slowest if cause in ("slow_worker", "slow_host") else None
    chosen = _typical(read.ranks, loads, slow)
    windows = min(one.windows for one in read.ranks)
    return Verdict(
        cause,
        shares[cause],
        job.seconds[cause],
        _gain(shares[cause]) if cause != "computing" else 1.0,
        "low" if read.silent else _sure(cause, shares, windows, loads[chosen].clear if cause in INPUT else 1.0),
        shares,
        job.step_s,
        int(min(max(one.steps for one in read.ranks), 1 << 53)),
        max(one.seconds for one in read.ranks),
        read.warm_up,
        windows,
        slow.ranks if slow is not None else (),
        slow.host if slow is not None else None,
        slow.spends if slow is not None else None,
        job.slowest,
        loads[chosen],
        workers,
        read.hosts,
        _late(metrics),
        sum(one.bytes_s for one in loads.values()),
        sum(one.values.get("load_bytes", 0.0) / one.steps for one in read.ranks),
        _missing(read, loads),
        tuple(read.silent),
    )


def _worker(rank: RankPeriod, load: Loading, job: Blame, *, alone: bool) -> WorkerVerdict:
    blame = blame_rank(rank, load.cause, job, alone=alone)
    phases = {name: rank.per_step(name) for name in rank.phases}
    shares = blame.shares()
    own = rank.step_s - rank.per_step("exchange")
    cause = _greatest(shares)
    slow = job.slowest
    if slow is not None and rank.rank in slow.ranks and max(job.share("slow_worker"), job.share("slow_host")) >= LEAST:
        cause = load.cause if slow.spends == "input" else "computing"  # what the others wait for
    return WorkerVerdict(rank.rank, rank.host, cause, shares, phases, rank.step_s, own, load)


def _without_pause(rank: RankPeriod, load: Loading) -> bool:
    """The loader works all the time: the rank takes as many batches as it can deliver."""
    batches = rank.values.get("batches") or rank.steps
    return bool(load.workers) and load.supply is not None and batches / rank.seconds >= _NO_PAUSE * load.supply


def _greatest(shares: Mapping[str, float]) -> str:
    """The greatest cause that can be removed, if it takes ``LEAST`` of the time; else computing."""
    removable = [cause for cause in CAUSES if cause != "computing"]
    first = max(removable, key=lambda cause: shares[cause])
    return first if shares[first] >= LEAST else "computing"


def _sure(cause: str, shares: Mapping[str, float], windows: int, clear: float) -> str:
    if cause == "computing":
        distance = LEAST - max(share for one, share in shares.items() if one != "computing")
        distance *= _HIGH[0] / (LEAST / 2)  # half of the limit is as far as the distance of a sure cause
    else:
        others = max(share for one, share in shares.items() if one not in (cause, "computing"))
        distance = min(shares[cause] - others, 2 * (shares[cause] - LEAST))
    if distance >= _HIGH[0] and windows >= _HIGH[1] and clear >= _CLEAR:
        return "high"
    return "medium" if distance >= _MEDIUM[0] and windows >= _MEDIUM[1] else "low"


def _gain(share: float) -> float:
    return 1 / max(1 - share, 1e-3)


def _input_cause(ranks: Sequence[RankPeriod], loads: Mapping[int, Loading]) -> str:
    """The cause with most seconds of input wait over the ranks that load."""
    waits = dict.fromkeys(INPUT, 0.0)
    for one in _loading_ranks(ranks, loads):
        waits[loads[one.rank].cause] += one.per_step("input") + 1e-12
    return max(INPUT, key=lambda cause: waits[cause])


def _loading_ranks(ranks: Sequence[RankPeriod], loads: Mapping[int, Loading]) -> list[RankPeriod]:
    """Those whose loader was measured; all if there is none. One rank may load for all, and sends them their part."""
    return [one for one in ranks if loads[one.rank].batch_s is not None] or list(ranks)


def _typical(ranks: Sequence[RankPeriod], loads: Mapping[int, Loading], slow: Slowest | None) -> int:
    """The rank whose loader the verdict shows: the slow one, else the one that waits longest with the job's cause."""
    if slow is not None:
        return slow.ranks[0]
    cause = _input_cause(ranks, loads)
    of_cause = [one for one in _loading_ranks(ranks, loads) if loads[one.rank].cause == cause]
    return max(of_cause, key=lambda one: (one.per_step("input"), -one.rank)).rank


def _late(metrics: RunMetrics) -> dict[int, float]:
    """Seconds that the engine of all ranks waited for each rank, the longest first."""
    seconds: dict[int, float] = {}
    for one in metrics.ranks.values():
        for other, waited in one.late.items():
            seconds[other] = seconds.get(other, 0.0) + max(0.0, waited)
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


def _missing_steps(metrics: RunMetrics) -> tuple[str, ...]:
    if any(one.timing.windows for one in metrics.ranks.values()):
        return ("No worker has reported an optimizer step or a batch yet.",)
    if metrics.world_size is not None or metrics.ranks or metrics.hosts:
        return (
            "The workers sent no timing event: the job ran for less than one interval of SMDP_TIMING_S, "
            "SMDP_TIMING_S is 0, or its image is of an earlier version.",
        )
    return ("The log has no event of a job.",)


def _missing(read: Period, loads: Mapping[int, Loading]) -> tuple[str, ...]:
    found = []
    if read.silent:
        ranks = ", ".join(str(rank) for rank in read.silent[:5]) + (", ..." if len(read.silent) > 5 else "")
        found.append(f"No timing event with a step: rank {ranks}. The figures are of the other ranks only.")
    if not any(one.cores for one in read.hosts.values()):
        found.append("The hosts sent no resources event, so the use of their cores is unknown.")
    if all(one.batch_s is None for one in loads.values()):
        found.append("The work of the data loader was not measured.")
    return tuple(found)
