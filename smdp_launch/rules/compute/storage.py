"""The disks of the hosts. Instance types with local NVMe disks have no other volumes."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, has_local_disks, instance
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.diagnostics import Severity
from smdp_launch.request.cost import instance_types
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.units import listed

_TYPES = ("compute.instance_type", "compute.fallback_types")
_KEY = ("encryption", "volume_key")


@rule("SMDP322", "encryption.volume_key", "compute.other_groups", "serve.kind", "serve.instance_type", *_TYPES)
def volume_key_is_applied(facts: Facts) -> Iterator[Problem]:
    if facts.spec.encryption.volume_key is None:
        return
    # With other groups, the key may be for the volumes of one of them.
    every = [] if facts.spec.compute.other_groups else instance_types(facts.spec)
    trains = [one for one in every if one in known_instance_types()]
    serve = facts.spec.serve
    serves = [serve.instance_type] if serve is not None and serve.kind == "batch" and serve.instance_type else []
    types = list(dict.fromkeys([*trains, *serves]))
    local = [one for one in types if has_local_disks(one) or _has_documented_disks(one)]
    if local:
        has = "has" if len(local) == 1 else "have"
        message = f"{listed(local)} {has} local NVMe disks, and SageMaker refuses a key for their volumes"
        if len(local) == len(types) and not facts.spec.compute.other_groups:
            help_ = "remove it: a hardware module encrypts the disks"
            yield Problem(_KEY, message, help_, remove=True)
        elif local == serves:
            help_ = "remove the key, or choose another `serve.instance_type`: the key encrypts the volumes of the job"
            yield Problem(_KEY, message, help_)
        else:
            help_ = "remove the key, or remove these types: the key encrypts the volumes of the other types"
            yield Problem(_KEY, message, help_)


def _has_documented_disks(name: str) -> bool:
    type_ = instance(name)
    return type_ is not None and bool(type_.local_nvme_gb) and type_.is_documented("local_nvme_gb")


@rule("SMDP323", "compute.volume_gb", *_TYPES, severity=Severity.WARNING)
def volume_fits_local_disks(facts: Facts) -> Iterator[Problem]:
    volume_gb = facts.spec.compute.volume_gb
    small = [one for one in _instances(facts) if one.local_nvme_gb and one.local_nvme_gb < volume_gb]
    if small:
        least = min(small, key=lambda one: one.local_nvme_gb or 0)
        message = (
            f"{volume_gb} GB do not fit: {least.name} has {least.local_nvme_gb} GB of local NVMe and no other volume"
        )
        help_ = "remove `volume_gb`; if the job needs more space, use `mode: FastFile` or FSx"
        yield Problem(("compute", "volume_gb"), message, help_)


def _instances(facts: Facts) -> list[Instance]:
    """The types that the job may get, without those that the catalogue does not know."""
    return [type_ for name in instance_types(facts.spec) if (type_ := instance(name)) is not None]
