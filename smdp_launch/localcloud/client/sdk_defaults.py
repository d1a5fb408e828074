"""The defaults file of the SageMaker SDK (versions 2 and 3) for a local cloud.

With a bucket and a role from the file, the SDK does not ask for them at `https://sts.REGION.amazonaws.com`, an address
that it names itself and that no variable overrides. It also sends no telemetry.
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
    """The file, in JSON, which is YAML too. It has no secret, but the folder is the user's alone."""
    path = StateFolder(endpoint.state_dir).sdk_defaults
    make_folder(path.parent)
    write_json(path, contents())


def create_bucket(endpoint: Endpoint) -> None:
    """Raises LocalCloudError."""
    # With it comes botocore, which `smdp_launch.testing` is imported without.
    from smdp_launch.localcloud.client.bucket import BucketError, Buckets

    buckets = Buckets(StateFolder(endpoint.state_dir))
    try:
        buckets.create(BUCKET)
    except BucketError as error:
        raise LocalCloudError(f"The bucket {BUCKET} in {endpoint.state_dir} cannot be created: {error}") from error
    finally:
        buckets.close()
