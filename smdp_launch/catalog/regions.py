"""Regions: their partition and DNS suffix, AWS's registry accounts, and the instance types that they offer."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table
from smdp_launch.diagnostics import closest


class Offering(NamedTuple):
    """Whether a region offers an instance type for training jobs, according to one source.

    Args:
        certain: whether the source is the service itself; no rule may refuse a job because of another source.
        as_of: day or year of the source; AWS adds regions over time.
    """

    instance_type: str
    region: str
    offered: bool
    certain: bool
    source: str
    as_of: str


def regions() -> list[str]:
    return list(_partitions())


def region_known(region: str) -> bool:
    return region in _partitions()


def closest_region(word: str) -> str | None:
    """The region that ``word`` probably means; None if none is similar.

    The names are very similar, so swapped letters are tried first: us-esat-1 means us-east-1, not us-west-1."""
    swapped = next((one for one in regions() if sorted(one) == sorted(word.lower())), None)
    return swapped or closest(word, regions(), cutoff=0.7)


def partition(region: str) -> str:
    """The partition, such as ``aws`` or ``aws-cn``.

    An unknown region gets the partition of the known regions with its prefix, or else ``aws``."""
    prefixes = ((one, name) for one, name in _partitions().items() if name != "aws")
    similar = (name for one, name in prefixes if region.startswith(f"{_prefix(one)}-"))
    return _partitions().get(region) or next(similar, "aws")


def _prefix(region: str) -> str:
    """The name without direction and number: ``cn`` of cn-north-1, ``us-gov`` of us-gov-west-1."""
    return region.rsplit("-", 2)[0]


def dns_suffix(region: str) -> str:
    return str(table("regions")["partitions"][partition(region)]["dns_suffix"])


def registry_account(region: str) -> str | None:
    """The account of AWS's deep learning containers; None if it is not known."""
    registries = table("regions")["registries"]
    default = registries["default_account"] if _partitions().get(region) == registries["default_partition"] else None
    account: str | None = registries["accounts"].get(region, default)
    return account


def registry_accounts() -> frozenset[str]:
    """Every account with AWS's deep learning containers."""
    registries = table("regions")["registries"]
    return frozenset([registries["default_account"], *registries["accounts"].values()])


def offering(instance_type: str, region: str) -> Offering | None:
    """The known offering of ``instance_type`` in ``region``; None if nothing is known, which does not mean no."""
    return next((one for one in _offerings() if (one.instance_type, one.region) == (instance_type, region)), None)


def regions_offering(instance_type: str) -> frozenset[str] | None:
    """The regions known to offer the type for training. Other regions may offer it too. None if none is known."""
    known = frozenset(one.region for one in _offerings() if one.instance_type == instance_type and one.offered)
    return known or None


@functools.cache
def _partitions() -> dict[str, str]:
    return {region: name for name, one in table("regions")["partitions"].items() for region in one["regions"]}


@functools.cache
def _offerings() -> tuple[Offering, ...]:
    rows: list[dict[str, Any]] = table("regions")["offerings"]
    return tuple(
        Offering(row["instance_type"], region, row["offered"], row["certain"], row["source"], row["as_of"])
        for row in rows
        for region in row["regions"]
    )
