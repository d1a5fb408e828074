"""From the seconds of an exchange: steps, samples, costs, and the number of hosts from which more hosts do not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: An added host does not pay if it does less than this share of the work that it could do without exchange.
WORTH = 0.5

DEFINITION = (
    "More hosts do not pay if the hosts added last do less than {worth:g} % of the work that they would do without "
    "exchange: each of their samples then costs more than {times:g} times a sample without exchange."
)


@dataclass(frozen=True)
class Point:
    """One schedule on one number of hosts.

    Args:
        step_s: includes the part of the exchange that does not overlap with the backward pass.
        efficiency: the step without exchange, divided by ``step_s``; 1 if the exchange overlaps completely.
        exchange_s: from the start of the backward pass to the last sum.
        samples_per_s: of all ranks together; None without a batch.
        epoch_s: None without the samples of an epoch.
        usd: of an epoch; None without a price.
        every_bucket: every bucket was modelled.
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
    """A step of one GPU without exchange, and the price of a host."""

    seconds: float
    backward_share: float
    batch: int | None
    samples: int | None
    hourly_usd: float | None


@dataclass(frozen=True)
class Stop:
    """The number of hosts from which more hosts do not pay.

    Args:
        pays: the largest number of hosts that pays; 0 if the smallest does not.
        stops: the next number of hosts, which does not pay; None if all modelled numbers pay.
        marginal: the share of their work that the hosts added last do.
    """

    pays: int
    stops: int | None
    marginal: float


def point(step: Step, hosts: int, gpus: int, exchange_s: float, *, every_bucket: bool) -> Point:
    """A point, for an exchange that starts with the backward pass and ends before the next step."""
    seconds = step.seconds + max(0.0, exchange_s - step.seconds * step.backward_share)
    ranks = hosts * gpus
    rate = step.batch * ranks / seconds if step.batch is not None else None
    epoch = step.samples / rate if step.samples is not None and rate is not None else None
    usd = hosts * step.hourly_usd * epoch / 3600 if epoch is not None and step.hourly_usd is not None else None
    return Point(hosts, ranks, seconds, step.seconds / seconds, exchange_s, rate, epoch, usd, every_bucket)


def stop(points: Sequence[Point], worth: float = WORTH) -> Stop:
    """The first of ``points``, in ascending order of hosts, whose added hosts do less than ``worth`` of their work.

    The work of n hosts is n times their efficiency. The share of m added hosts is the growth of the work divided by m.
    The share of the first point is its efficiency.
    """
    before, marginal = 0, 0.0
    for one, added in zip(points, marginals(points), strict=True):
        if added < worth:
            return Stop(before, one.hosts, added)
        before, marginal = one.hosts, added
    return Stop(before, None, marginal)


def marginals(points: Sequence[Point]) -> list[float]:
    """For each point, the share of their work that the hosts do which the previous point does not have."""
    work = [(0, 0.0), *((one.hosts, one.hosts * one.efficiency) for one in points)]
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(work)]


def definition(worth: float) -> str:
    return DEFINITION.format(worth=round(100 * worth, 1), times=round(1 / worth, 2))
