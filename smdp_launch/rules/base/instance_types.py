"""The instance types that a job can get, with their fields."""

from __future__ import annotations

from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.cost import instance_types

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
