"""The numbers of hosts in a ResourceConfig: of a CreateTrainingJob request, or of an answer that describes a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

#: The type that the service has selected of several, and the number of hosts: fields that no request may have.
SELECTED = ("SelectedInstanceType", "SelectedInstanceCount")


def hosts_by_type(resources: Mapping[str, Any]) -> dict[str, int]:
    """The hosts of all groups by instance type. Of several types to choose from, only the one that the service has
    selected counts."""
    hosts = Counter[str]()
    for one in resources.get("InstanceGroups") or [resources]:
        for selected in ("", "Selected"):
            if f"{selected}InstanceType" in one:
                hosts[str(one[f"{selected}InstanceType"])] += int(one.get(f"{selected}InstanceCount", 1))
                break
    return dict(hosts)


def host_count(resources: Mapping[str, Any]) -> int:
    """The hosts of all groups. Of several types to choose from, the largest number counts; 1 without any number."""
    preferred = [int(one.get("InstanceCount", 1)) for one in resources.get("InstancePreferences", ())]
    return sum(hosts_by_type(resources).values()) or max(preferred, default=1)
