"""Names of the local cloud's resources, in a module that is cheap to import: every job's supervisor needs them."""

from __future__ import annotations

from smdp_launch.localcloud.environment import ACCOUNT

#: The region of the launcher's own clients, and of jobs without a recorded region.
REGION = "us-east-1"


def training_job_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:training-job/{name}"


def model_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:model/{name}"


def endpoint_config_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:endpoint-config/{name}"


def endpoint_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:endpoint/{name}"


def transform_job_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:transform-job/{name}"


def tuning_job_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:hyper-parameter-tuning-job/{name}"


def role_arn(name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def role_name(arn: str) -> str:
    """The role's name without its path: roles of the local cloud have no paths."""
    return arn.rpartition("/")[2]


def training_plan_arn(name: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:training-plan/{name}"
