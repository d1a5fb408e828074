"""How fast gradients are exchanged, as others measured it, and the published steps of well-known models.

Rates are in bytes a second. Everything here is an input of a model and no promise: where no measurement of a type was
found, one of another type stands in for it, and its source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.catalog.tables import table

_GBIT = 1e9 / 8


class Rate(NamedTuple):
    """Bytes a second, and where the figure is from."""

    bytes_per_second: float
    source: str


class PublishedStep(NamedTuple):
    """One step of one GPU alone, forward and backward pass, without any exchange."""

    seconds: float
    samples: int
    gpu: str
    source: str


def checked() -> str:
    """The day of the table."""
    return str(table("exchange")["checked"])


def link_rate(found: Instance) -> float:
    """Of all network interfaces of a host together, each way."""
    return found.network_gbit * _GBIT


def efa_rate(found: Instance) -> Rate | None:
    """What a host can send over EFA; None for a type without it."""
    if not found.efa_interfaces:
        return None
    known = table("exchange")["efa"]
    return Rate(link_rate(found) * known["share"], known["source"])


def ring_rate(found: Instance, hosts: int) -> Rate:
    """What NCCL's ring moved between ``hosts`` hosts: over EFA where the type has it, else over TCP."""
    known = table("exchange")["ring"]
    if not found.efa_interfaces:
        tcp = known["tcp"]
        return Rate(min(link_rate(found), _from(tcp["bytes_per_second"], hosts)), tcp["source"])
    name = known["same_as"].get(found.name, found.name)
    if name in known["efa"]:
        measured = known["efa"][name]
        return Rate(_from(measured["bytes_per_second"], hosts), measured["source"])
    name = known["otherwise"]
    measured = known["efa"][name]
    share = _from(measured["bytes_per_second"], hosts) / link_rate(_known(name))
    source = f"no measurement of {found.name} was found: the link's share as on {name}, {measured['source']}"
    return Rate(share * link_rate(found), source)


def rate_within_host(found: Instance) -> Rate:
    """Between two neighbouring GPUs of one host."""
    known = table("exchange")["within_a_host"]
    return Rate(known[found.fabric]["bytes_per_second"], known["source"])


def memory_rate(found: Instance) -> Rate | None:
    """What all processors of a host together copy and add up; None for a type without an assumption."""
    known = table("exchange")["memory"]
    one = known.get(found.name)
    return Rate(one["bytes_per_second"], known["source"]) if one is not None else None


def published_steps() -> dict[str, PublishedStep]:
    """By the name of the model's trace."""
    return {
        name: PublishedStep(one["samples"] / one["samples_per_second"], one["samples"], one["gpu"], one["source"])
        for name, one in table("exchange")["steps"].items()
    }


def ring_table() -> Mapping[str, Mapping[int, float]]:
    """Bytes a second of a ring of ml.p3dn.24xlarge by transport, each from so many hosts on."""
    known = table("exchange")["ring"]
    measured = {"TCP": known["tcp"], "EFA": known["efa"]["ml.p3dn.24xlarge"]}
    return {
        name: {int(least): rate for least, rate in one["bytes_per_second"].items()} for name, one in measured.items()
    }


def _known(name: str) -> Instance:
    found = instance(name)
    if found is None:
        raise LookupError(f"{name} is not in the table of instances")
    return found


def _from(by_hosts: Mapping[str, float], hosts: int) -> float:
    """The value that holds from the largest host count on that is not above ``hosts``."""
    return by_hosts[str(max(int(least) for least in by_hosts if int(least) <= hosts))]
