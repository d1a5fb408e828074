"""The instance types that a job can get, with their fields."""

from __future__ import annotations

from smdp_launch.catalog.instances import has_no_accelerators, instance
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.batch import on_cpus
from smdp_launch.request.cost import instance_types
from smdp_launch.rules.base.facts import Facts

TYPE: Location = ("compute", "instance_type")
FALLBACK: Location = ("compute", "fallback_types")
OTHERS: Location = ("compute", "other_groups")


def located_types(spec: JobSpec) -> list[tuple[Location, str]]:
    """Each type that the hosts that train can get, with its field: the instance type first, then the fallback types."""
    first, *others = instance_types(spec)
    return [(TYPE, first), *(((*FALLBACK, index), one) for index, one in enumerate(others))]


def all_located_types(spec: JobSpec) -> list[tuple[Location, str]]:
    """As ``located_types``, with the types of all groups."""
    others = (spec.compute.other_groups or {}).items()
    return [*located_types(spec), *(((*OTHERS, name, "instance_type"), one.instance_type) for name, one in others)]


def trains_on_cpus(facts: Facts) -> bool:
    """Whether the hosts have no GPUs, and the engine is one that trains on CPUs."""
    type_ = facts.spec.compute.instance_type
    return facts.has("engine") and on_cpus(facts.spec) and has_no_accelerators(type_)


def workers_are_known(facts: Facts) -> bool:
    """Whether the number of workers on each host is known: of GPUs, or the one on a host that trains on CPUs."""
    return instance(facts.spec.compute.instance_type) is not None or trains_on_cpus(facts)
