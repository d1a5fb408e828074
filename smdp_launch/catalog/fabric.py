"""What NCCL and its plugin for EFA need on an instance type, and which of them AWS's images contain."""

from __future__ import annotations

import re
from typing import NamedTuple

from smdp_launch.catalog.tables import table


class NcclNeed(NamedTuple):
    """The oldest versions with which NCCL uses the EFA of a type."""

    cuda: str
    nccl: str
    plugin: str


class NcclStack(NamedTuple):
    """The versions in one of AWS's images; None for one that is not documented."""

    nccl: str | None = None
    plugin: str | None = None


def nccl_need(instance_type: str) -> NcclNeed | None:
    """None for a type without a documented need."""
    rows = table("nccl")["needs"]
    row = next((one for one in rows if re.fullmatch(one["types"], instance_type)), None)
    return NcclNeed(row["cuda"], row["nccl"], row["plugin"]) if row is not None else None


def nccl_stack(framework: str, version: str, cuda: str | None) -> NcclStack | None:
    """The versions in AWS's image; None if they are not documented."""
    row = table("nccl")["images"].get(f"{framework} {version} {cuda}")
    return NcclStack(row.get("nccl"), row.get("plugin")) if row is not None else None
