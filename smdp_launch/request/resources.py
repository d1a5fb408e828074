"""The request's ResourceConfig: the hosts that a job needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.groups import groups


def resource_config(spec: JobSpec) -> dict[str, Any]:
    compute = spec.compute
    resources: dict[str, Any] = {"VolumeSizeInGB": compute.volume_gb}
    if compute.other_groups:
        resources["InstanceGroups"] = [
            {"InstanceGroupName": one.name, "InstanceType": one.instance_type, "InstanceCount": one.instance_count}
            for one in groups(spec)
        ]
    elif compute.fallback_types is None:
        resources |= {"InstanceType": compute.instance_type, "InstanceCount": compute.instance_count}
    else:
        types = [compute.instance_type, *compute.fallback_types]
        resources["InstancePreferences"] = instance_preferences(types, compute.instance_count, compute.training_plan)
    if compute.training_plan is not None and compute.fallback_types is None:
        resources["TrainingPlanArn"] = compute.training_plan
    if compute.keep_alive is not None:
        resources["KeepAlivePeriodInSeconds"] = compute.keep_alive
    if spec.encryption.volume_key is not None:
        resources["VolumeKmsKeyId"] = spec.encryption.volume_key
    return resources


def instance_preferences(types: Sequence[str], count: int, training_plan: str | None) -> list[dict[str, Any]]:
    """The field that requests ``count`` hosts of the first of ``types`` with enough capacity.

    A training plan has instances of one type, the first.
    """
    preferences: list[dict[str, Any]] = [{"InstanceType": one, "InstanceCount": count} for one in types]
    if training_plan is not None:
        preferences[0]["TrainingPlanArns"] = [training_plan]
    return preferences
