"""Names of the local cloud's resources. Apart from what keeps them: every job's supervisor needs a name."""

from __future__ import annotations

from smdp_launch.localcloud.environment import ACCOUNT

#: Of our own clients, and of jobs without a region of their own.
REGION = "us-east-1"


def training_job_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:training-job/{name}"


def role_arn(name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def role_name(arn: str) -> str:
    """Without its path, which roles of the local cloud do not have."""
    return arn.rpartition("/")[2]
