"""Transform jobs of a local cloud, and a check that they leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.services.cloud import BUCKET, processes_with
from tests.support.services.serving import Serving
from tests.support.waiting import wait_for

_ENDED = ("Completed", "Failed", "Stopped")


@pytest.fixture(autouse=True)
def leaves_nothing(serving: Serving) -> Iterator[None]:
    yield
    root = serving.cloud.state_dir / "transforms"
    wait_for(lambda: not processes_with(str(root)), "the end of the jobs' processes")
    assert not [path for name in ("hosts", "models", "scratch") for path in root.glob(f"*/{name}")]


def request(name: str, model: str, prefix: str, **changes: Any) -> dict[str, Any]:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}}
    made = {
        "TransformJobName": name,
        "ModelName": model,
        "TransformInput": {"DataSource": source, "ContentType": "text/csv", **changes.pop("TransformInput", {})},
        "TransformOutput": {"S3OutputPath": f"s3://{BUCKET}/out/{name}", **changes.pop("TransformOutput", {})},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    return {**made, **changes}


def put(serving: Serving, key: str, body: bytes) -> None:
    serving.cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=body)


def run(serving: Serving, name: str, model: str, prefix: str, **changes: Any) -> dict[str, Any]:
    serving.sagemaker.create_transform_job(**request(name, model, prefix, **changes))
    return ended(serving, name)


def ended(serving: Serving, name: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        answer = serving.sagemaker.describe_transform_job(TransformJobName=name)
        return answer if answer["TransformJobStatus"] in _ENDED else None

    return wait_for(found, f"the end of {name}")  # type: ignore[no-any-return]


def outputs(serving: Serving, name: str) -> dict[str, bytes]:
    prefix = f"out/{name}/"
    return {key.removeprefix(prefix): serving.cloud.object(key) for key in serving.cloud.keys(prefix)}
