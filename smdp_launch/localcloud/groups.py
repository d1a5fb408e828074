"""The instance groups of a request's ResourceConfig, and the names of their hosts.

The platform names the hosts without regard to groups (docs.aws.amazon.com/sagemaker/latest/dg,
train-heterogeneous-cluster-modify-training-script). Here the first group has the first names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from smdp_launch.host_counts import host_count

#: The platform's name of the only group of a job.
ONLY_GROUP = "homogeneousCluster"

Request = Mapping[str, Any]


class Group(NamedTuple):
    name: str
    instance_type: str
    hosts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As in resourceconfig.json."""
        return {
            "instance_group_name": self.name,
            "instance_type": self.instance_type,
            "hosts": list(self.hosts),
        }


def host_names(count: int) -> list[str]:
    """algo-1 to algo-COUNT, sorted as text as the platform sorts them (algo-10 before algo-2)."""
    return sorted(f"algo-{number}" for number in range(1, count + 1))


def groups(resources: Request) -> list[Group]:
    names = iter(host_names(host_count(resources)))
    return [
        Group(
            one.get("InstanceGroupName", ONLY_GROUP),
            one["InstanceType"],
            tuple(next(names) for _ in range(one["InstanceCount"])),
        )
        for one in _requested(resources)
    ]


def receives(channel: Request, host: str, resources: Request) -> bool:
    """Whether the host gets the channel: a channel may name groups."""
    named = channel["DataSource"].get("S3DataSource", {}).get("InstanceGroupNames")
    return not named or any(host in one.hosts for one in groups(resources) if one.name in named)


def _requested(resources: Request) -> Sequence[Request]:
    return resources.get("InstanceGroups") or [resources]
