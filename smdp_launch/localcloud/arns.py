"""Where the local cloud's resources are said to be. Apart from what keeps them: every job's supervisor needs a name."""

from __future__ import annotations

from smdp_launch.localcloud.environment import ACCOUNT

REGION = "us-east-1"


def training_job_arn(name: str) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"
