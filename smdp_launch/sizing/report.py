"""A sizing as JSON (docs/schemas/size.schema.json) and as sentences."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from smdp_launch.catalog.storage import checked, source_texts
from smdp_launch.sizing.choices import Choice, best
from smdp_launch.sizing.need import Need

#: Version of ``size --json``; raised when a field changes its meaning or is removed.
SIZE_VERSION = 1


def sizing_json(need: Need, found: list[Choice]) -> dict[str, Any]:
    first = best(found)
    return {
        "size": SIZE_VERSION,
        "mb_per_second": need.mb_s,
        "hosts": need.hosts,
        "source": need.source,
        "data_gb": need.data_gb,
        "object_mb": need.object_mb,
        "rates_checked": checked(),
        "sources": source_texts(),
        "smallest_fsx": first.name if first is not None else None,
        "choices": [asdict(one) for one in found],
    }


def verdict(need: Need, found: list[Choice]) -> str:
    """The smallest file system in one sentence."""
    first = best(found)
    if first is None:
        return f"No file system carries {need.mb_s:.3g} MB/s to {need.hosts} hosts."
    cost = f", {first.monthly_usd:,.2f} USD a month" if first.monthly_usd is not None else ""
    return f"Smallest FSx for Lustre: {first.name[4:]} with {first.capacity_gib} GiB, {first.mb_s:.0f} MB/s{cost}."
