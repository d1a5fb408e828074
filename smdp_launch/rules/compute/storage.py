"""The disks of the hosts: instance types with local NVMe have nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.units import listed

_TYPES = ("compute.instance_type", "compute.fallback_types")
_KEY = ("encryption", "volume_key")


@rule("SMDP322", "encryption.volume_key", *_TYPES)
def key_of_a_volume_that_is_made(facts: Facts) -> Iterator[Finding]:
    if facts.spec.encryption.volume_key is None:
        return
    found = _instances(facts)
    local = [one.name for one in found if one.local_nvme_gb and "local_nvme_gb" not in one.from_memory]
    if local:
        has = "has" if len(local) == 1 else "have"
        message = f"{listed(local)} {has} local NVMe disks, and SageMaker refuses a key for their volumes"
        if len(local) == len(found):
            help_ = "leave it out: a hardware module encrypts the disks"
            yield Finding(_KEY, message, help_, remove=True)
        else:
            help_ = "leave it out, or leave out these types: the volumes of the others are encrypted with the key"
            yield Finding(_KEY, message, help_)


@rule("SMDP323", "compute.volume_gb", *_TYPES, severity=Severity.WARNING)
def volume_within_the_disks(facts: Facts) -> Iterator[Finding]:
    asked = facts.spec.compute.volume_gb
    small = [one for one in _instances(facts) if one.local_nvme_gb and one.local_nvme_gb < asked]
    if small:
        least = min(small, key=lambda one: one.local_nvme_gb or 0)
        message = (
            f"{asked} GB do not fit: {least.name} has {least.local_nvme_gb} GB of local NVMe and gets no other volume"
        )
        help_ = (
            "if the job needs more, read the data while training (`mode: FastFile`, or FSx); else leave `volume_gb` out"
        )
        yield Finding(("compute", "volume_gb"), message, help_)


def _instances(facts: Facts) -> list[Instance]:
    """The types that the job may get, as far as the catalogue knows them."""
    compute = facts.spec.compute
    names = [compute.instance_type, *(compute.fallback_types or ())]
    return [found for name in names if (found := instance(name)) is not None]
