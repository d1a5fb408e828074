"""Regions: their partition and DNS suffix, AWS's registry accounts, and where instance types are offered."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table
from smdp_launch.diagnostics import closest


class Offering(NamedTuple):
    """What a source says about an instance type for training jobs in a region.

    Args:
        certain: whether the service itself said so; no rule may refuse a job for less.
        as_of: day or year of the source; AWS adds regions as time goes on.
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
    """The region that ``word`` is a slip of. Regions are so much alike that swapped letters come first:
    us-esat-1 is us-east-1, though us-west-1 has as many letters in place."""
    swapped = next((one for one in regions() if sorted(one) == sorted(word.lower())), None)
    return swapped or closest(word, regions(), cutoff=0.7)


def partition(region: str) -> str:
    """Such as ``aws`` or ``aws-cn``. A region that is not known is in the partition of those with its prefix, else in
    that of most regions."""
    prefixes = ((one, name) for one, name in _partitions().items() if name != "aws")
    alike = (name for one, name in prefixes if region.startswith(f"{_prefix(one)}-"))
    return _partitions().get(region) or next(alike, "aws")


def _prefix(region: str) -> str:
    """Such as ``cn`` of cn-north-1 and ``us-gov`` of us-gov-west-1: all but the direction and the number."""
    return region.rsplit("-", 2)[0]


def dns_suffix(region: str) -> str:
    return str(table("regions")["partitions"][partition(region)]["dns_suffix"])


def registry_account(region: str) -> str | None:
    """The account of AWS's deep learning containers; None where none is known."""
    registries = table("regions")["registries"]
    default = registries["default_account"] if _partitions().get(region) == registries["default_partition"] else None
    found: str | None = registries["accounts"].get(region, default)
    return found


def registry_accounts() -> frozenset[str]:
    """Every account that holds AWS's deep learning containers."""
    registries = table("regions")["registries"]
    return frozenset([registries["default_account"], *registries["accounts"].values()])


def offering(instance_type: str, region: str) -> Offering | None:
    """What is known of ``instance_type`` in ``region``; None where nothing is, which does not mean no."""
    return next((one for one in _offerings() if (one.instance_type, one.region) == (instance_type, region)), None)


def regions_offering(instance_type: str) -> frozenset[str] | None:
    """The regions known to offer the type for training: further ones may. None where nothing is known of it."""
    found = frozenset(one.region for one in _offerings() if one.instance_type == instance_type and one.offered)
    return found or None


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
