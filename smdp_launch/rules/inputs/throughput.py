"""Whether the storage of the channels delivers what an earlier run of the job read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smdp_launch.catalog import storage
from smdp_launch.catalog.instances import instance
from smdp_launch.catalog.storage import Lustre
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.sizing.choices import smallest
from smdp_launch.sizing.file_system import declared_kind, declared_mb_s, possible_kinds
from smdp_launch.sizing.need import MeasuredInput, Need
from smdp_launch.units import all_of, count, listed

_PARTS = ("deployment_type", "throughput_per_unit", "capacity_gib")
_KEYS = ("throughput_mb_s", *_PARTS)
_AWS = "`aws fsx describe-file-systems` shows it"


@rule("SMDP427", "channels")
def fsx_throughput_is_described(facts: Facts) -> Iterator[Problem]:
    described: dict[str, tuple[str, float]] = {}
    for name, channel in _fsx_channels(facts):
        problem = _wrong_description(name, channel)
        if problem is not None:
            yield problem
            continue
        rate = declared_mb_s(channel)
        if rate is None:
            continue
        first, other = described.setdefault(channel.fsx, (name, rate))
        if other != rate:
            message = f"{channel.fsx} has {rate:,.0f} MB/s here, but {other:,.0f} MB/s in channel {first}"
            yield Problem(("channels", name, _place(channel)), message, "write the same values in both channels")


def _wrong_description(name: str, channel: FsxChannel) -> Problem | None:
    given = [key for key in _PARTS if getattr(channel, key) is not None]
    at = ("channels", name)
    if channel.throughput_mb_s is not None and given:
        message = f"throughput_mb_s stands in place of {listed(given)}, but channel {name} has both"
        return Problem((*at, "throughput_mb_s"), message, f"remove it, or remove {listed(given)}", on_key=True)
    if not given:
        return None
    kinds = possible_kinds(channel)
    units = sorted({one.unit_mb_s for one in kinds})
    if channel.deployment_type is not None and not kinds:
        valid = sorted({one.unit_mb_s for one in storage.lustre_types() if one.type == channel.deployment_type})
        message = f"{channel.deployment_type} has no throughput of {channel.throughput_per_unit} MB/s for each TiB"
        return Problem((*at, "throughput_per_unit"), message, f"write {_either(valid)}; {_AWS}")
    missing = [key for key in _PARTS if getattr(channel, key) is None]
    if channel.deployment_type is not None and len(units) == 1:
        missing = [key for key in missing if key != "throughput_per_unit"]
    if missing:
        message = f"channel {name} has {listed(given)}, but without {listed(missing)} its throughput is unknown"
        help_ = f"add {listed(missing)}, or write `throughput_mb_s` alone; {_AWS}"
        return Problem((*at, given[0]), message, help_, on_key=True)
    (kind,), capacity = kinds, channel.capacity_gib or 0
    if not kind.has_capacity(capacity):
        sizes = listed([*(f"{one} GiB" for one in kind.sizes), f"multiples of {kind.step} GiB"])
        message = f"{kind.name} has no file system of {capacity} GiB: it has {sizes}"
        return Problem((*at, "capacity_gib"), message, f"write {_either(kind.nearest(capacity))}; {_AWS}")
    return None


def _either(values: Sequence[int]) -> str:
    *first, last = (str(one) for one in values)
    return f"{', '.join(first)} or {last}" if first else last


@rule("SMDP428", "channels", "compute.instance_count", "compute.instance_type", severity=Severity.WARNING)
def channels_carry_the_measured_rate(facts: Facts) -> Iterator[Problem]:
    if facts.measured is None or facts.local:
        return
    groups, hosts = _groups(facts), facts.spec.compute.instance_count
    for group in groups:
        rate = _rate(facts.measured, group, alone=len(groups) == 1)
        limit = min(_limits(facts, group), key=lambda one: one.mb_s, default=None)
        if rate is None or limit is None:
            continue
        need = rate * hosts / facts.measured.hosts
        if need <= limit.mb_s:
            continue
        before = count(facts.measured.hosts, "local host" if facts.measured.is_local else "host")
        needs = "needs" if len(group.channels) == 1 else "need"
        message = (
            f"{all_of('channel', group.channels)} {needs} {need:,.0f} MB/s on {count(hosts, 'host')}"
            f" ({facts.measured.job} measured {rate:,.3g} MB/s on {before}), but {limit.reason}"
        )
        compare = f"`smdp-launch size {facts.document.file} --hosts {hosts}` compares the storages"
        help_ = f"{limit.fix(need, hosts)}; {compare}; write `silence: [SMDP428]` if the hosts keep the data in memory"
        first, *others = (("channels", name, limit.key) for name in group.channels)
        yield Problem(first, message, help_, also=tuple(others))


@dataclass(frozen=True)
class _Group:
    """Channels that share a storage."""

    kind: str
    channels: tuple[str, ...]


@dataclass(frozen=True)
class _Limit:
    """Args:
    mb_s: to all hosts of the job.
    reason: a clause.
    key: of the channel that sets it.
    lustre: whose capacity can be increased.
    advice: what to do; empty for ``lustre``.
    """

    mb_s: float
    reason: str
    key: str
    advice: str = ""
    lustre: Lustre | None = None

    def fix(self, need: float, hosts: int) -> str:
        if self.lustre is None:
            return self.advice
        capacity = smallest(self.lustre, Need(need, hosts, ""), efa=False)
        if capacity is None:
            return "no capacity of this file system is enough: choose a type with more throughput for each TiB"
        more = ", or its throughput for each TiB" if self.lustre.type != "SCRATCH_2" else ""
        return f"increase the file system to {capacity} GiB{more}"


def _rate(measured: MeasuredInput, group: _Group, *, alone: bool) -> float | None:
    """MB/s that the run read from the group; None if it does not show which of several storages it read."""
    if alone:
        return measured.mb_s
    if not all(name in measured.channels for name in group.channels):
        return None
    return sum(measured.channels[name] for name in group.channels)


def _groups(facts: Facts) -> list[_Group]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, channel in facts.channels():
        if isinstance(channel, FsxChannel):
            key = ("fsx", channel.fsx)
        elif isinstance(channel, EfsChannel):
            key = ("efs", channel.efs)
        else:
            key = ("disk", "") if channel.mode == "File" else ("s3", name)
        found.setdefault(key, []).append(name)
    return [_Group(kind, tuple(names)) for (kind, _), names in found.items()]


def _limits(facts: Facts, group: _Group) -> Iterator[_Limit]:
    """All limits of the group that a document gives. A copy on the host's disk (File) has none."""
    channel = facts.spec.channels[group.channels[0]]
    hosts = facts.spec.compute.instance_count
    if isinstance(channel, FsxChannel):
        yield from _lustre_limits(facts, group, hosts)
    elif isinstance(channel, EfsChannel):
        efs = storage.efs()
        other = "use FSx for Lustre, or FastFile mode from S3"
        reason = f"outside Elastic mode EFS delivers {efs.read_mb_s:,} MB/s to all hosts in most regions"
        yield _Limit(efs.read_mb_s, reason, "efs", other)
        reason = f"outside Elastic mode EFS delivers {efs.host_mb_s} MB/s to a host"
        yield _Limit(efs.host_mb_s * hosts, reason, "efs", other)
    elif channel.mode != "File":
        yield from _request_limits(facts, group)
    type_ = instance(facts.spec.compute.instance_type)
    if group.kind != "disk" and type_ is not None and "network_gbit" not in type_.from_memory:
        rate = type_.network_gbit * 1000 / 8
        reason = f"the network of {type_.name} carries {rate:,.0f} MB/s for each host"
        fix = "use an instance type with a faster network, smaller samples, or File mode, which reads from the disk"
        yield _Limit(rate * hosts, reason, {"fsx": "fsx", "efs": "efs"}.get(group.kind, "mode"), fix)


def _lustre_limits(facts: Facts, group: _Group, hosts: int) -> Iterator[_Limit]:
    described = {name: channel for name, channel in _fsx_channels(facts) if name in group.channels}
    channel = next((one for one in described.values() if declared_mb_s(one) is not None), None)
    kind, capacity = (declared_kind(channel), channel.capacity_gib or 0) if channel is not None else (None, 0)
    may_have_efa = kind is None or (kind.efa_step is not None and capacity % kind.efa_step == 0)
    client = storage.lustre_client(efa=may_have_efa)
    reason = f"a host reads {client:,} MB/s at most from FSx for Lustre"
    yield _Limit(client * hosts, reason, "fsx", "use more hosts, or read less for each sample")
    rate = declared_mb_s(channel) if channel is not None else None
    if channel is not None and rate is not None:
        reason = f"its file system delivers {rate:,.0f} MB/s"
        if kind is not None:
            reason += f" ({kind.type}, {capacity} GiB at {kind.unit_mb_s} MB/s for each TiB)"
        yield _Limit(rate, reason, _place(channel), "increase the throughput of the file system", kind)


def _request_limits(facts: Facts, group: _Group) -> Iterator[_Limit]:
    """Objects are read whole, so their mean size in the local data limits the bytes of a prefix."""
    data = facts.local_data.get(group.channels[0])
    if data is None or not data.files or not data.size:
        return
    known = storage.s3()
    size = data.size / data.files
    reason = (
        f"S3 answers {known.gets_per_prefix:,} GET requests a second for a prefix, which is"
        f" {known.gets_per_prefix * size / 1e6:,.0f} MB/s with objects of {size / 1e3:,.0f} kB, as in its local data"
    )
    fix = "pack small files into shards of 100 MB or more, or distribute them over several prefixes"
    yield _Limit(known.gets_per_prefix * size / 1e6, reason, "mode", fix)


def _fsx_channels(facts: Facts) -> Iterator[tuple[str, FsxChannel]]:
    for name, channel in facts.channels():
        if isinstance(channel, FsxChannel) and all(facts.loaded.has("channels", name, one) for one in ("fsx", *_KEYS)):
            yield name, channel


def _place(channel: FsxChannel) -> str:
    return "throughput_mb_s" if channel.throughput_mb_s is not None else "capacity_gib"
