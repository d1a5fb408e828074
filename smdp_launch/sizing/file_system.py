"""What the FSx file system of a channel delivers, as the job file describes it."""

from __future__ import annotations

from smdp_launch.catalog.storage import Lustre, lustre_types
from smdp_launch.jobfile.model.channels import FsxChannel


def declared_mb_s(channel: FsxChannel) -> float | None:
    """MB/s of the file system; None if the job file does not give it."""
    if channel.throughput_mb_s is not None:
        return float(channel.throughput_mb_s)
    kind = declared_kind(channel)
    return kind.throughput(channel.capacity_gib) if kind is not None and channel.capacity_gib is not None else None


def declared_kind(channel: FsxChannel) -> Lustre | None:
    """The deployment type with its throughput for each TiB; None if the job file does not give both."""
    kinds = possible_kinds(channel) if channel.deployment_type is not None else []
    return kinds[0] if len(kinds) == 1 else None


def possible_kinds(channel: FsxChannel) -> list[Lustre]:
    """The kinds with the type and the throughput for each TiB of the channel, as far as it has them."""
    return [
        one
        for one in lustre_types()
        if channel.deployment_type in (None, one.type) and channel.throughput_per_unit in (None, one.unit_mb_s)
    ]
