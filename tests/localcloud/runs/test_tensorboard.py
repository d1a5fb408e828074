"""The local cloud copies TensorBoard's event files to the bucket while the job runs, as the service does."""

from __future__ import annotations

import botocore.exceptions
import pytest

from tests.support.services.cloud import BUCKET, Cloud
from tests.support.waiting import wait_for

WRITES = """
import pathlib, time
folder = pathlib.Path("{folder}")
output = pathlib.Path("/opt/ml/output")
(folder / "deeper").mkdir()
(folder / "deeper" / "first").write_text("1")
(folder / "gone").write_text("2")
while not (output / "go").exists():
    time.sleep(0.02)
(folder / "gone").unlink()
(folder / "deeper" / "first").write_text("11")
"""


def config(path: str | None = None) -> dict[str, str]:
    return {"S3OutputPath": f"s3://{BUCKET}/boards/"} | ({"LocalPath": path} if path is not None else {})


@pytest.mark.parametrize("path", [None, "/opt/ml/boards"])
def test_event_files_are_copied_while_the_job_runs(cloud: Cloud, path: str | None) -> None:
    name = f"boards-{'named' if path else 'default'}"
    script = WRITES.format(folder=path or "/opt/ml/output/tensorboard")
    cloud.start(name, script, TensorBoardOutputConfig=config(path))
    prefix = f"boards/{name}/tensorboard-output/"
    wait_for(lambda: cloud.keys(prefix) == [f"{prefix}deeper/first", f"{prefix}gone"], "copies of a running job")
    (cloud.output(name) / "go").touch()
    assert cloud.wait(name)["TrainingJobStatus"] == "Completed"
    assert cloud.keys(prefix) == [f"{prefix}deeper/first", f"{prefix}gone"]  # a deleted file stays in the bucket
    assert cloud.object(f"{prefix}deeper/first") == b"11"
    assert cloud.describe(name)["TensorBoardOutputConfig"] == config(path)


@pytest.mark.parametrize("path", ["/opt/ml/output/data", "/opt/ml/output", "/opt/ml/input/x", "/tmp/x", "/opt/ml/../x"])
def test_folder_of_the_platform_is_refused(cloud: Cloud, path: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match=r"TensorBoardOutputConfig\.LocalPath"):
        cloud.start("boards-refused", "", TensorBoardOutputConfig=config(path))


def test_job_without_the_bucket_fails_with_the_reason(cloud: Cloud) -> None:
    script = "open('/opt/ml/output/tensorboard/x', 'w').close()"
    job = cloud.run("boards-nowhere", script, TensorBoardOutputConfig={"S3OutputPath": "s3://no-such-bucket/boards"})
    assert job["TrainingJobStatus"] == "Failed"
    assert "TensorBoard upload failed:NoSuchBucket" in job["FailureReason"]
