"""Why a rank waits for its input: the storage, the work on the samples, or too few loader workers.

A batch costs its loader ``batch_s`` seconds: on a CPU, waiting for a free CPU, and blocked, which is the wait for the
storage. W loader workers deliver W batches in that time. The training thread waits if that is less than it uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from smdp_launch.diagnosis.period import HostPeriod, RankPeriod

#: A loader that can deliver so much more than the step uses keeps its queue filled in spite of slow batches.
SPARE = 1.2
#: More loader workers for a rank than this do not count as a small change of settings.
FEW_WORKERS = 4
_MOST_WORKERS = 10_000
#: A machine whose cores are busier than this share has no free core.
_FULL = 0.9
#: Share of the time on a CPU or waiting for one that is waiting, from which the cores are taken as busy.
_QUEUED = 0.25


@dataclass(frozen=True)
class Loading:
    """What loading a batch costs a rank. Seconds are per batch of one loader worker.

    Args:
        cause: ``source``, ``decoding`` or ``workers``.
        clear: 0 to 1; how far the deciding figures are from another cause.
        needed: loader workers that would keep up with the rest of the step; None if no number would, or it is unknown.
        supply: batches a second that the loader can deliver.
        demand: batches a second that the training thread would use if it never waited for input.
        bytes_s: bytes a second that the loader read.
    """

    cause: str
    clear: float
    batch_s: float | None = None
    cpu_s: float = 0.0
    queued_s: float = 0.0
    blocked_s: float = 0.0
    workers: int | None = None
    needed: int | None = None
    supply: float | None = None
    demand: float | None = None
    bytes_s: float = 0.0


def loading(rank: RankPeriod, host: HostPeriod | None, ranks_of_host: int) -> Loading:
    """The cause of this rank's input wait, whether it is long or not."""
    batches = rank.values.get("batches") or rank.steps
    rest = max(rank.seconds - rank.phases["input"], 1e-9) / batches
    fetched = rank.values.get("load_batches", 0.0)
    if not fetched or not rank.values.get("load_s"):
        return _without_measurement(rank, host, 1 / rest)
    batch_s = rank.values["load_s"] / fetched
    cpu = min(batch_s, rank.values.get("load_cpu_s", 0.0) / fetched)
    queued = min(batch_s - cpu, rank.values.get("load_queued_s", 0.0) / fetched)
    work = _Work(batch_s, cpu, queued, rest, batches / rank.seconds, rank.load_workers)
    cause, clear = _cause(work, host, ranks_of_host)
    return Loading(
        cause,
        clear,
        batch_s,
        cpu,
        queued,
        work.blocked,
        rank.load_workers,
        work.needed,
        max(rank.load_workers or 0, 1) / batch_s if rank.load_workers is not None else None,
        1 / rest,
        rank.values.get("load_bytes", 0.0) / rank.seconds,
    )


@dataclass(frozen=True)
class _Work:
    """Seconds of a batch.

    Args:
        rest: of the training thread, without waiting for input.
        rate: batches a second that the rank took.
    """

    batch: float
    cpu: float
    queued: float
    rest: float
    rate: float
    workers: int | None

    @property
    def blocked(self) -> float:
        return self.batch - self.cpu - self.queued

    @property
    def needed(self) -> int:
        return math.ceil(min(SPARE * self.batch / self.rest, _MOST_WORKERS))


def _cause(work: _Work, host: HostPeriod | None, ranks_of_host: int) -> tuple[str, float]:
    """The cause, and how clear it is."""
    blocked = work.blocked / work.batch
    if blocked > 0.5:
        # A loader that mostly waits uses no core. Without a worker, a few workers hide such waiting behind the step.
        hidden = work.workers == 0 and work.needed <= FEW_WORKERS
        return ("workers" if hidden else "source"), 2 * blocked - 1
    clear = 1 - 2 * blocked
    if work.workers and work.workers >= work.needed and work.queued <= _QUEUED * work.cpu:
        return "workers", clear / 2  # They keep up on average: they start too often, or hand over slowly.
    if host is not None and host.cores and host.busy is not None:
        loaders = ranks_of_host * work.cpu * work.rate
        target = max(0.0, host.busy - loaders) + ranks_of_host * work.cpu / work.rest
        return ("workers" if target <= _FULL * host.cores else "decoding"), clear
    busy = work.queued > _QUEUED * (work.cpu + work.queued)
    return ("decoding" if busy else "workers"), clear / 2


def _without_measurement(rank: RankPeriod, host: HostPeriod | None, demand: float) -> Loading:
    """A loader without hooks: only the machine shows whether its cores are busy."""
    if rank.load_workers == 0:
        return Loading("workers", 0.0, workers=0, demand=demand)
    if host is not None and host.cores and host.busy is not None and host.busy > _FULL * host.cores:
        return Loading("decoding", 0.0, workers=rank.load_workers, demand=demand)
    return Loading("source", 0.0, workers=rank.load_workers, demand=demand)
