"""Functions that the SageMaker SDK v2's `@remote` decorates run in the local cloud.

`make test-clients` makes the SDK's environment and runs this there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from smdp_launch.testing import LocalCloud, local_cloud

# Ignore the SDK's own warnings.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="mine")
        yield made


def settings(cloud: LocalCloud) -> dict[str, Any]:
    from sagemaker.session import Session

    return {
        "role": cloud.role,
        "instance_type": "ml.p4d.24xlarge",
        "image_uri": "image",
        "s3_root_uri": "s3://mine/functions",
        "sagemaker_session": Session(default_bucket="mine"),
    }


def test_remote_function_returns_value_and_raises_exception(cloud: LocalCloud) -> None:
    from sagemaker.remote_function import remote

    @remote(**settings(cloud))
    def divided(number: int, by: int) -> dict[str, float]:
        return {"quotient": number / by}

    assert divided(7, by=2) == {"quotient": 3.5}
    with pytest.raises(ZeroDivisionError):
        divided(1, by=0)
    jobs = boto3.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    assert sorted(one["TrainingJobStatus"] for one in jobs) == ["Completed", "Failed"]
