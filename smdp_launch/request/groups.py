"""The instance groups of a job whose hosts are of several types.

The rules of AWS that this project relies on, checked on 2026-11-28:

- Every host gets the same image and the same script, and one group only is part of the distribution
  (docs.aws.amazon.com/sagemaker/latest/dg, train-heterogeneous-cluster-configure and -configure-distributed).
- Only a channel from S3 can name groups (botocore's model, S3DataSource.InstanceGroupNames).
- AWS's toolkits run the script as a plain process on the hosts of the other groups (sagemaker-pytorch-training-toolkit,
  training.py).
- A job ends when the script has exited on all hosts: in AWS's examples the hosts that train stop the data hosts.
- There are no warm pools (developer guide), and InstancePreferences excludes InstanceGroups (botocore's model).
"""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.jobfile.model.channels import Channel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec

#: The name of the group of hosts that train, if the job file has none.
WORKERS = "workers"

#: The hyperparameter that names the groups of the distribution, as the SageMaker SDK sends it.
DISTRIBUTION_GROUPS = "sagemaker_distribution_instance_groups"


class Group(NamedTuple):
    name: str
    instance_type: str
    instance_count: int


def training_group(spec: JobSpec) -> str:
    return spec.compute.group_name or WORKERS


def groups(spec: JobSpec) -> list[Group]:
    """The group of the hosts that train first; empty if the job has no other group."""
    compute = spec.compute
    others = [Group(name, one.instance_type, one.instance_count) for name, one in (compute.other_groups or {}).items()]
    return [Group(training_group(spec), compute.instance_type, compute.instance_count), *others] if others else []


def host_count(spec: JobSpec) -> int:
    """The hosts of all groups."""
    return sum(one.instance_count for one in groups(spec)) or spec.compute.instance_count


def hosts_of(spec: JobSpec, channel: Channel) -> int:
    """The hosts that get the channel's data."""
    named = channel.groups if isinstance(channel, S3Channel) else None
    if named is None:
        return host_count(spec)
    return sum(one.instance_count for one in groups(spec) if one.name in named)
