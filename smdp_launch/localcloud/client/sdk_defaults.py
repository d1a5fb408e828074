"""The defaults file of the SageMaker SDK (versions 2 and 3) for a local cloud.

Without a bucket and a role in the file, the SDK calls `https://sts.REGION.amazonaws.com`, an address that no variable
overrides. The file also switches telemetry off.
"""

from __future__ import annotations

from typing import Any

from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.client.connect import Endpoint, LocalCloudError
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.files import write_json
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.private_files import make_folder

BUCKET = f"sagemaker-{REGION}-{ACCOUNT}"  # the name that the SDK chooses
ROLE = f"arn:aws:iam::{ACCOUNT}:role/training"


def contents() -> dict[str, Any]:
    modules = {
        "Session": {"DefaultS3Bucket": BUCKET},
        "RemoteFunction": {"RoleArn": ROLE},
        "TelemetryOptOut": True,
    }
    return {
        "SchemaVersion": "1.0",
        "SageMaker": {"PythonSDK": {"Modules": modules}, "TrainingJob": {"RoleArn": ROLE}},
    }


def write(endpoint: Endpoint) -> None:
    """Write the file as JSON, which is YAML too. It contains no secret, but the folder is private to the user."""
    path = StateFolder(endpoint.state_dir).sdk_defaults
    make_folder(path.parent)
    write_json(path, contents())


def create_bucket(endpoint: Endpoint) -> None:
    """Raises LocalCloudError."""
    # It imports botocore, and `smdp_launch.testing` must be importable without botocore.
    from smdp_launch.localcloud.client.bucket import BucketError, Buckets

    buckets = Buckets(StateFolder(endpoint.state_dir))
    try:
        buckets.create(BUCKET)
    except BucketError as error:
        raise LocalCloudError(f"The bucket {BUCKET} in {endpoint.state_dir} cannot be created: {error}") from error
    finally:
        buckets.close()
