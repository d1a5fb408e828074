"""Published measurements: the speed of gradient exchange, and the step times of well-known models.

Rates are in bytes a second. They are inputs of a model, not promises. If there is no measurement of an instance type,
the measurement of another type is used, and the source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.catalog.tables import table

_GBIT = 1e9 / 8


class Rate(NamedTuple):
    """Bytes a second, and the source of the figure."""

    bytes_per_second: float
    source: str


class PublishedStep(NamedTuple):
    """One step of one GPU alone: forward and backward pass, without any exchange."""

    seconds: float
    samples: int
    gpu: str
    source: str


def checked() -> str:
    """The day on which the table was checked."""
    return str(table("exchange")["checked"])


def link_rate(host: Instance) -> float:
    """The rate of all network interfaces of a host together, in each direction."""
    return host.network_gbit * _GBIT


def interface_rate(host: Instance) -> float:
    """The rate of one network interface of a host: hosts with several EFA interfaces have as many network cards."""
    return link_rate(host) / max(1, host.efa_interfaces)


def efa_rate(host: Instance) -> Rate | None:
    """The rate at which a host can send over EFA; None for a type without EFA."""
    if not host.efa_interfaces:
        return None
    known = table("exchange")["efa"]
    return Rate(link_rate(host) * known["share"], known["source"])


def ring_rate(host: Instance, hosts: int) -> Rate:
    """The measured rate of NCCL's ring between ``hosts`` hosts: over EFA if the type has it, or else over TCP."""
    known = table("exchange")["ring"]
    if not host.efa_interfaces:
        tcp = known["tcp"]
        return Rate(min(link_rate(host), _from(tcp["bytes_per_second"], hosts)), tcp["source"])
    name = known["same_as"].get(host.name, host.name)
    if name in known["efa"]:
        measured = known["efa"][name]
        return Rate(_from(measured["bytes_per_second"], hosts), measured["source"])
    name = known["otherwise"]
    measured = known["efa"][name]
    share = _from(measured["bytes_per_second"], hosts) / link_rate(_known(name))
    source = f"no measurement of {host.name}: the same share of the link as on {name}, {measured['source']}"
    return Rate(share * link_rate(host), source)


def rate_within_host(host: Instance) -> Rate:
    """The rate between two neighbouring GPUs of one host."""
    known = table("exchange")["within_a_host"]
    if host.fabric is None:
        assumed = "PCIe"
        return Rate(known[assumed]["bytes_per_second"], f"{assumed}, the slowest connection: {known['source']}")
    return Rate(known[host.fabric]["bytes_per_second"], known["source"])


def memory_rate(host: Instance) -> Rate | None:
    """The rate at which all processors of a host together copy and add; None for a type without an assumption."""
    known = table("exchange")["memory"]
    row = known.get(host.name)
    return Rate(row["bytes_per_second"], known["source"]) if row is not None else None


def published_steps() -> dict[str, PublishedStep]:
    """The published steps by the name of the model's trace."""
    return {
        name: PublishedStep(one["samples"] / one["samples_per_second"], one["samples"], one["gpu"], one["source"])
        for name, one in table("exchange")["steps"].items()
    }


def ring_table() -> Mapping[str, Mapping[int, float]]:
    """Bytes a second of a ring of ml.p3dn.24xlarge, by transport and by the smallest number of hosts."""
    known = table("exchange")["ring"]
    measured = {"TCP": known["tcp"], "EFA": known["efa"]["ml.p3dn.24xlarge"]}
    return {
        name: {int(least): rate for least, rate in one["bytes_per_second"].items()} for name, one in measured.items()
    }


def _known(name: str) -> Instance:
    known = instance(name)
    if known is None:
        raise LookupError(f"{name} is not in the table of instances")
    return known


def _from(by_hosts: Mapping[str, float], hosts: int) -> float:
    """The value for the largest host count of the table that is not above ``hosts``."""
    return by_hosts[str(max(int(least) for least in by_hosts if int(least) <= hosts))]
