"""Whether the job is in a VPC, and how to put it there."""

from __future__ import annotations

from smdp_launch.jobfile.model.spec import JobSpec

#: What the help of a rule asks users to add.
NETWORK = "`network: {subnets: [SUBNET], security_groups: [GROUP]}`"


def is_in_vpc(spec: JobSpec) -> bool:
    """Whether the job names subnets or security groups. Another rule reports one without the other."""
    return spec.network.subnets is not None or spec.network.security_groups is not None
