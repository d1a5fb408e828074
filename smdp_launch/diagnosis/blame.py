"""Divides the time of a step by its causes.

In data-parallel training no rank starts the next step before the slowest one, because the exchange of gradients ends
on all ranks together. The own time of a rank is its step without the exposed wait for exchanges. So a step takes the
own time of the slowest rank, plus what even that rank waits for, which is the network. The own time of the slowest
rank is what the other ranks need too, plus its excess over them, which the others spend waiting.

Checkpoints, logging and evaluation do not happen in each step, and often on rank 0 only. The job takes the longest of
each over the ranks; they are no part of the comparison of the ranks.

Neither is the wait for input if all loaders are equally fast. Loaders work ahead: one rank whose queue is empty waits
in each step, and the others, whose queues fill up meanwhile, wait for it in the exchange. This rank is not slower than
the others, it only has no batches in store. If no loader ever pauses, the ranks run out of batches in turn. Each
then waits for the others in the exchange, and the time that the engine waited for their arrival is input as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smdp_launch.diagnosis.period import RankPeriod, middle

INPUT = ("source", "decoding", "workers")
#: All causes, in the order of the flow of a step.
CAUSES = (*INPUT, "computing", "exchanges", "slow_worker", "slow_host", "checkpoints", "logging", "evaluation")
#: Phases that happen now and then, and the cause that each is.
RARE = {"checkpoint": "checkpoints", "logging": "logging", "evaluation": "evaluation"}
#: Phases of each step, without the exchange.
STEADY = ("input", "copy", "forward", "backward", "optimizer", "other")
#: Loaders are equally fast if the slowest needs less than so many times the time of a typical one for a batch.
_ALIKE = 1.3
#: Ranks with at least this share of the excess of the slowest rank are slow as well.
_ALSO_SLOW = 0.5


@dataclass(frozen=True)
class Slowest:
    """The rank, or the host, that the others wait for.

    Args:
        ranks: the slowest first.
        host: of the slowest rank.
        whole_host: all ranks of the host are slow, and no other rank.
        excess_s: seconds a step of the slowest rank over the median of the ranks that are not slow.
        spends: the phase that has most of the excess.
        own_s: seconds a step of the slowest rank without waiting for exchanges.
        others_s: the same for the others.
    """

    ranks: tuple[int, ...]
    host: str
    whole_host: bool
    excess_s: float
    spends: str
    own_s: float
    others_s: float


@dataclass(frozen=True)
class Blame:
    """Seconds of each step by cause. They sum to ``step_s``."""

    seconds: Mapping[str, float]
    step_s: float
    slowest: Slowest | None

    def share(self, cause: str) -> float:
        return self.seconds.get(cause, 0.0) / self.step_s if self.step_s > 0 else 0.0

    def shares(self) -> dict[str, float]:
        return {cause: self.share(cause) for cause in CAUSES}


def blame_job(
    ranks: Sequence[RankPeriod],
    input_cause: str,
    batch_s: Sequence[float | None],
    *,
    no_pause: bool = False,
    alone: bool = False,
) -> Blame:
    """Of the whole job; ``ranks`` are not empty.

    Args:
        batch_s: seconds of the loader of each rank for a batch, divided by its workers; None: unknown.
        no_pause: the loaders of all ranks work all the time, so their rate is the job's.
        alone: the job has one worker. It exchanges with no other one: its work on the gradients is computing.
    """
    step_s = middle(one.step_s for one in ranks)
    alike = _alike(batch_s)
    slowest = slowest_of(ranks, STEADY if not alike else tuple(name for name in STEADY if name != "input"))
    first = slowest.ranks[0] if slowest is not None else ranks[0].rank
    critical = next(one for one in ranks if one.rank == first)
    seconds = dict.fromkeys(CAUSES, 0.0)
    excess = slowest.excess_s if slowest is not None else 0.0
    others = [one for one in ranks if slowest is None or one.rank not in slowest.ranks] or list(ranks)
    common = {name: min(critical.per_step(name), middle(one.per_step(name) for one in others)) for name in STEADY}
    seconds[input_cause] = max(one.per_step("input") for one in ranks) if alike else common["input"]
    seconds["computing"] = sum(value for name, value in common.items() if name != "input")
    if slowest is not None:
        seconds["slow_host" if slowest.whole_host else "slow_worker"] = excess
    for phase, cause in RARE.items():
        seconds[cause] = max(one.per_step(phase) for one in ranks)
    known = sum(seconds.values())
    if len(ranks) > 1:
        seconds["exchanges"] = max(0.0, step_s - known)
        transfer = [one.transfer_share for one in ranks if one.transfer_share is not None]
        if alike and no_pause and transfer:
            arrivals = min(seconds["exchanges"], *(one.per_step("exchange") for one in ranks)) * (1 - max(transfer))
            seconds["exchanges"] -= arrivals
            seconds[input_cause] += arrivals
    else:
        seconds["exchanges"] = 0.0 if alone else critical.per_step("exchange")
        seconds["computing"] += max(0.0, step_s - known - seconds["exchanges"])
    return _scaled(seconds, step_s, slowest)


def blame_rank(rank: RankPeriod, input_cause: str, job: Blame, *, alone: bool = False) -> Blame:
    """Of one rank. Its wait for exchanges is the network's up to what the job blames on it; the rest is for others."""
    seconds = dict.fromkeys(CAUSES, 0.0)
    seconds["computing"] = sum(rank.per_step(name) for name in STEADY if name != "input")
    wait = rank.per_step("exchange")
    if alone:
        seconds["computing"], wait = seconds["computing"] + wait, 0.0
    for cause, own in ((input_cause, rank.per_step("input")), *((RARE[name], rank.per_step(name)) for name in RARE)):
        of_others = min(wait, max(0.0, job.seconds[cause] - own))
        seconds[cause] = own + of_others
        wait -= of_others
    network = min(wait, job.seconds["exchanges"])
    slow = job.slowest is not None and rank.rank not in job.slowest.ranks
    if not slow:
        network = wait
    seconds["exchanges"] = network
    seconds["slow_host" if job.slowest is not None and job.slowest.whole_host else "slow_worker"] += wait - network
    return _scaled(seconds, rank.step_s, job.slowest)


def _alike(batch_s: Sequence[float | None]) -> bool:
    known = [one for one in batch_s if one is not None]
    return len(known) == len(batch_s) and max(known) < _ALIKE * middle(known)


def slowest_of(ranks: Sequence[RankPeriod], phases: Sequence[str] = STEADY) -> Slowest | None:
    """The slowest rank by these phases, if it is slower than others; None for a single rank or equal ones."""
    own = {one.rank: sum(one.per_step(name) for name in phases) for one in ranks}
    first = max(ranks, key=lambda one: (own[one.rank], -one.rank), default=None)
    if first is None or len(ranks) < 2:
        return None
    base = middle(own[one.rank] for one in ranks if one is not first)
    least = base + _ALSO_SLOW * (own[first.rank] - base)
    if own[first.rank] <= base:
        return None
    slow = sorted((one for one in ranks if own[one.rank] >= least), key=lambda one: (-own[one.rank], one.rank))
    others = [one for one in ranks if one not in slow]
    if not others:
        return None
    others_s = middle(own[one.rank] for one in others)
    of_host = {one.rank for one in ranks if one.host == first.host}
    whole = len(of_host) > 1 and of_host == {one.rank for one in slow}
    more = {name: first.per_step(name) - middle(one.per_step(name) for one in others) for name in phases}
    spends = max(phases, key=lambda name: (more[name], name))
    excess = own[first.rank] - others_s
    return Slowest(tuple(one.rank for one in slow), first.host, whole, excess, spends, own[first.rank], others_s)


def _scaled(seconds: dict[str, float], step_s: float, slowest: Slowest | None) -> Blame:
    """Make the seconds sum to the step: the ranks' windows are not aligned, so sums may be a little more."""
    total = sum(seconds.values())
    if total <= 0:
        seconds["computing"], total = step_s, step_s
    factor = step_s / total
    return Blame({cause: value * factor for cause, value in seconds.items()}, step_s, slowest)
