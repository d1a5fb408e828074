"""The storage choices for a need: what each delivers, what limits it, and when the first batch is there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from smdp_launch.catalog import storage
from smdp_launch.sizing.need import Need

_GIB_PER_GB = 1e9 / 2**30
#: A capacity beyond this is not offered without a request to AWS, and no useful answer.
_MOST_GIB = 2_400_000


@dataclass(frozen=True)
class Choice:
    """Args:
    name: of the storage, such as ``FSx SCRATCH_2 SSD 200`` or ``FastFile``.
    carries: whether it delivers the need; None: no rate is documented.
    mb_s: that it delivers to all hosts; None: no rate is documented.
    burst_mb_s: for a limited time; None: no burst is documented.
    capacity_gib: of FSx; None for others.
    limit: what limits it.
    first_batch: when the first batch is there.
    first_batch_s: seconds, where they are known.
    monthly_usd: from the price table; None without a price.
    sources: of its rates.
    assumption: what no source states as such; None: nothing is assumed.
    """

    name: str
    carries: bool | None
    limit: str
    first_batch: str
    mb_s: float | None = None
    burst_mb_s: float | None = None
    capacity_gib: int | None = None
    first_batch_s: float | None = None
    monthly_usd: float | None = None
    sources: tuple[str, ...] = ()
    assumption: str | None = None


def choices(need: Need, *, efa: bool = False, prices: Mapping[str, float] | None = None) -> list[Choice]:
    """All choices: FSx for Lustre by capacity, then the others.

    Args:
        efa: only file systems with EFA.
        prices: USD a month of a GB, by the name of the choice without ``FSx ``, such as ``PERSISTENT_2 SSD 250``.
    """
    found = [one for kind in storage.lustre_types() if (one := lustre(kind, need, efa, prices or {})) is not None]
    found.sort(key=lambda one: (one.capacity_gib or 0, one.mb_s or 0.0))
    return [*found, *_others(need)]


def smallest(kind: storage.Lustre, need: Need, efa: bool) -> int | None:
    """The smallest capacity in GiB that carries the need and has room for the data; None if there is none."""
    step = kind.efa_step if efa else kind.step
    if step is None:
        return None
    capacity = need.mb_s / kind.unit_mb_s * 1000
    room = (need.data_gb or 0.0) * _GIB_PER_GB
    least = max(capacity, room, 1.0)
    if not least <= _MOST_GIB:
        return None
    sizes = () if efa else kind.sizes
    fitting = [size for size in sizes if size >= least]
    return min([*fitting, math.ceil(least / step - 1e-9) * step])


def lustre(kind: storage.Lustre, need: Need, efa: bool, prices: Mapping[str, float]) -> Choice | None:
    """The smallest file system of this kind; None if no capacity is enough, or the kind has no EFA."""
    capacity = smallest(kind, need, efa)
    if capacity is None:
        return None
    client = storage.lustre_client(efa)
    rate = min(kind.throughput(capacity), client * need.hosts)
    unit = kind.disk_burst_mb_s or kind.network_burst_mb_s
    cached = "" if kind.disk_burst_mb_s else " for data in the servers' memory"
    limit = f"{kind.unit_mb_s} MB/s for each TiB"
    if unit is not None:
        limit += f"; bursts{cached} while credits last"
    if need.host_mb_s > client:
        limit = f"a host reads {client} MB/s at most"
    price = prices.get(kind.name)
    return Choice(
        f"FSx {kind.name}",
        carries=rate >= need.mb_s,
        limit=limit,
        first_batch="at once; the first read of a file that is linked to S3 copies it from there",
        mb_s=rate,
        burst_mb_s=unit * capacity / 1000 if unit is not None else None,
        capacity_gib=capacity,
        monthly_usd=price * capacity if price is not None else None,
        sources=kind.sources,
    )


def _others(need: Need) -> Iterator[Choice]:
    step, most = storage.tiering_step()
    tiering = max(1, math.ceil(min(need.mb_s, most) / step)) * step
    yield Choice(
        "FSx Intelligent-Tiering",
        carries=min(tiering, storage.lustre_client(efa=False) * need.hosts) >= need.mb_s,
        limit=f"multiples of {step} MB/s; data that is not in its SSD cache comes from a slower tier",
        first_batch="at once",
        mb_s=float(tiering),
        sources=storage.tiering_sources(),
    )
    yield _file_mode(need)
    yield from _streams(need)
    efs = storage.efs()
    rate = float(min(efs.read_mb_s, efs.host_mb_s * need.hosts))
    limit = f"{efs.read_mb_s} MB/s for the file system and {efs.host_mb_s} for a host, outside of Elastic mode"
    yield Choice("EFS", rate >= need.mb_s, limit, "at once", mb_s=rate, sources=efs.sources)


def _file_mode(need: Need) -> Choice:
    known = storage.file_mode()
    rate = float(known.volume_mb_s * need.hosts)
    limit = f"the volume of a host reads about {known.volume_mb_s} MB/s, a local NVMe disk or its memory more"
    first, seconds = "after the copy of all data; --data-size computes it", None
    if need.data_gb is not None:
        seconds = need.data_gb * 1000 / known.download_mb_s
        first = f"after {_time(seconds)}: each host copies all data at about {known.download_mb_s} MB/s"
    return Choice(
        "File",
        rate >= need.mb_s,
        limit,
        first,
        mb_s=rate,
        first_batch_s=seconds,
        sources=known.sources,
        assumption=known.assumption,
    )


def _streams(need: Need) -> Iterator[Choice]:
    known = storage.s3()
    if need.object_mb is None:
        limit = f"{known.gets_per_prefix} GET a second for each prefix; --object-size computes the requests"
        fast, carries = limit, None
    else:
        requests = need.mb_s / need.object_mb
        carries = False if requests > known.gets_per_prefix else None
        limit = f"about {requests:,.3g} GET a second, of {known.gets_per_prefix} for each prefix"
        small = need.object_mb < known.fast_file_object_mb
        fast = limit + (f"; objects below {known.fast_file_object_mb} MB read slowly" if small else "")
    for name, limits in (
        ("FastFile", f"{fast}; no rate is documented, measure it"),
        ("Pipe", f"{limit}; no rate is documented; one reader for each channel"),
    ):
        yield Choice(name, carries, limits, "within seconds", sources=known.sources, assumption=known.assumption)


def best(found: list[Choice]) -> Choice | None:
    """The cheapest FSx that carries the need where all have a price; else the one with the least capacity."""
    able = [one for one in found if one.capacity_gib is not None and one.carries]
    if not able:
        return None
    if all(one.monthly_usd is not None for one in able):
        return min(able, key=lambda one: (one.monthly_usd or 0.0, one.capacity_gib or 0))
    return min(able, key=lambda one: (one.capacity_gib or 0, one.mb_s or 0.0))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
