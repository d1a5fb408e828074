"""From the seconds of an exchange to what a user pays for: steps, samples, money, and where more hosts stop to pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Of what an added host could do without any exchange, the part below which it does not pay.
WORTH = 0.5

DEFINITION = (
    "Hosts stop to pay at the count where those added last do less than {worth:g} % of the work that they would do "
    "without any exchange: a sample of theirs then costs more than {times:g} times one that is free of exchange."
)


@dataclass(frozen=True)
class Point:
    """One schedule on so many hosts.

    Args:
        step_s: with the exchange that the backward pass does not hide.
        efficiency: the step without exchange over this one; 1 where all of it is hidden.
        exchange_s: from the beginning of the backward pass to the last sum.
        samples_per_s: of all ranks together; None without a batch.
        epoch_s, usd: of an epoch; None without its samples, without a price.
        every_bucket: whether each bucket was modelled.
    """

    hosts: int
    ranks: int
    step_s: float
    efficiency: float
    exchange_s: float
    samples_per_s: float | None
    epoch_s: float | None
    usd: float | None
    every_bucket: bool


@dataclass(frozen=True)
class Step:
    """What a step of one GPU is, and what it is worth."""

    seconds: float
    backward_share: float
    batch: int | None
    samples: int | None
    hourly_usd: float | None


@dataclass(frozen=True)
class Stop:
    """Where more hosts stop to pay.

    Args:
        pays: the largest number of hosts that pays; 0 where the smallest does not.
        stops: the next number of hosts, which does not; None where all that were asked for pay.
        marginal: the part of their work that the hosts added last do.
    """

    pays: int
    stops: int | None
    marginal: float


def point(step: Step, hosts: int, gpus: int, exchange_s: float, *, every_bucket: bool) -> Point:
    """The exchange begins with the backward pass, and the next step with its end."""
    seconds = step.seconds + max(0.0, exchange_s - step.seconds * step.backward_share)
    ranks = hosts * gpus
    rate = step.batch * ranks / seconds if step.batch is not None else None
    epoch = step.samples / rate if step.samples is not None and rate is not None else None
    usd = hosts * step.hourly_usd * epoch / 3600 if epoch is not None and step.hourly_usd is not None else None
    return Point(hosts, ranks, seconds, step.seconds / seconds, exchange_s, rate, epoch, usd, every_bucket)


def stop(points: Sequence[Point], worth: float = WORTH) -> Stop:
    """The first of ``points``, by hosts, whose added hosts do less than ``worth`` of their work.

    The work of n hosts is n times their efficiency; what a added hosts do is its growth over a. That of the first
    point is its efficiency.
    """
    before, marginal = 0, 0.0
    for one, added in zip(points, marginals(points), strict=True):
        if added < worth:
            return Stop(before, one.hosts, added)
        before, marginal = one.hosts, added
    return Stop(before, None, marginal)


def marginals(points: Sequence[Point]) -> list[float]:
    """Of each point: the part of their work that the hosts do which the point before has not."""
    work = [(0, 0.0), *((one.hosts, one.hosts * one.efficiency) for one in points)]
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(work)]


def definition(worth: float) -> str:
    return DEFINITION.format(worth=round(100 * worth, 1), times=round(1 / worth, 2))
