"""Batch transform: objects in, objects with the model's answers out."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client import shared
from tests.support.services.cloud import BUCKET, kill
from tests.support.services.serving import Serving, never_answers
from tests.support.services.transforms import ended, leaves_nothing, outputs, put, request, run
from tests.support.waiting import wait_for

__all__ = ["leaves_nothing"]  # a fixture

#: Answers each line of the body with its length and the number of lines of the request.
LINES = """
import os

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    if "bad" in body:
        raise ValueError("a bad line")
    lines = body.splitlines()
    return "\\n".join(f"{len(line)} of {len(lines)}" for line in lines) + os.environ.get("END", ""), accept
"""


@pytest.fixture(scope="module")
def model(serving: Serving) -> str:
    return serving.create_model("lines", LINES)


def test_objects_are_transformed_below_the_output_path(serving: Serving, model: str) -> None:
    put(serving, "whole/a.csv", b"1\n22\n")
    put(serving, "whole/sub/b.csv", b"333")
    described = run(serving, "whole", model, "whole/", TransformOutput={"Accept": "text/csv"})
    assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
    assert outputs(serving, "whole") == {"a.csv.out": b"1 of 2\n2 of 2", "sub/b.csv.out": b"3 of 1"}
    assert described["TransformStartTime"] <= described["TransformEndTime"]
    assert described["TransformJobArn"].endswith(":transform-job/whole")
    group = {"logGroupName": "/aws/sagemaker/TransformJobs", "logStreamNamePrefix": "whole/"}
    assert any("serving inference.py" in one["message"] for one in serving.logs.filter_log_events(**group)["events"])


@pytest.mark.parametrize(
    ("strategy", "assemble", "end", "expected"),
    [
        ("SingleRecord", "Line", "", b"1 of 1\n2 of 1\n3 of 1\n"),
        pytest.param("SingleRecord", "None", ";", b"1 of 1;2 of 1;3 of 1;", marks=pytest.mark.runs),
        pytest.param("MultiRecord", "Line", "", b"1 of 3\n2 of 3\n3 of 3\n", marks=pytest.mark.runs),
    ],
)
def test_lines_are_records(
    serving: Serving, model: str, strategy: str, assemble: str, end: str, expected: bytes
) -> None:
    name = f"lines-{strategy}-{assemble}"
    put(serving, f"{name}/a.csv", b"1\n22\n\n333\n")
    described = run(
        serving,
        name,
        model,
        f"{name}/",
        BatchStrategy=strategy,
        Environment={"END": end},
        MaxConcurrentTransforms=2,
        TransformInput={"SplitType": "Line"},
        TransformOutput={"AssembleWith": assemble, "Accept": "text/csv"},
    )
    assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
    assert outputs(serving, name) == {"a.csv.out": expected}


@pytest.mark.runs
def test_payloads_are_limited_and_inputs_decompressed_on_several_hosts(serving: Serving, model: str) -> None:
    line = b"x" * (300 * 1024) + b"\n"
    put(serving, "packed/a.csv.gz", gzip.compress(line * 7))
    described = run(
        serving,
        "packed",
        model,
        "packed/a",
        MaxPayloadInMB=1,
        MaxConcurrentTransforms=2,
        TransformInput={"SplitType": "Line", "CompressionType": "Gzip"},
        TransformOutput={"AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )
    assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
    length = len(line) - 1
    three = b"".join(b"%d of 3\n" % length for _ in range(3))
    assert outputs(serving, "packed") == {"a.csv.gz.out": three + three + b"%d of 1\n" % length}


def test_error_of_the_model_fails_the_job_with_object_and_cause(serving: Serving, model: str) -> None:
    put(serving, "bad/a.csv", b"1\nbad\n")
    described = run(serving, "bad", model, "bad/", ModelClientConfig={"InvocationsMaxRetries": 0})
    assert described["TransformJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("ClientError: bad/a.csv: Received server error (500) from primary")
    assert "transform_fn failed: ValueError: a bad line" in described["FailureReason"]
    assert outputs(serving, "bad") == {}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("key", "body", "changes", "reason"),
    [
        ("other/a", b"1", {}, "ClientError: No S3 objects found under S3 URL 's3://bucket/absent/'."),
        ("absent/a", b"x" * (2 << 20), {"MaxPayloadInMB": 1}, "ClientError: absent/a: a record has 2097152 bytes"),
        ("absent/a", b"x", {"TransformInput": {"CompressionType": "Gzip"}}, "ClientError: absent/a: it is not whole"),
    ],
    ids=["none", "large", "gzip"],
)
def test_input_that_cannot_be_sent_fails_the_job(
    serving: Serving,
    model: str,
    key: str,
    body: bytes,
    changes: dict[str, Any],
    reason: str,
    request: pytest.FixtureRequest,
) -> None:
    put(serving, key, body)
    name = f"input-{request.node.callspec.id}"
    described = run(serving, name, model, "absent/", **changes)
    serving.cloud.s3.delete_object(Bucket=BUCKET, Key=key)
    assert described["TransformJobStatus"] == "Failed"
    assert described["FailureReason"].startswith(reason)


@pytest.mark.runs
def test_model_that_cannot_be_served_fails_the_job(serving: Serving) -> None:
    broken = serving.create_model("broken", "raise ValueError('no such luck')")
    put(serving, "broken/a.csv", b"1")
    described = run(serving, "broken", broken, "broken/")
    assert described["FailureReason"].startswith("AlgorithmError: The container exited with code 1: ")
    assert "no such luck" in described["FailureReason"]


@pytest.mark.runs
def test_job_is_stopped_during_a_request_and_listed(serving: Serving) -> None:
    started = serving.cloud.state_dir / "started"
    slow = serving.create_model("sleeper", never_answers(started))
    put(serving, "slow/a.csv", b"1")
    serving.sagemaker.create_transform_job(**request("stopped", slow, "slow/"))
    wait_for(started.exists, "the request to begin")
    assert "transform/stopped" in shared.status(serving.cloud.state_dir).running
    serving.sagemaker.stop_transform_job(TransformJobName="stopped")
    assert ended(serving, "stopped")["TransformJobStatus"] == "Stopped"
    listed = serving.sagemaker.list_transform_jobs(StatusEquals="Stopped")["TransformJobSummaries"]
    assert [one["TransformJobName"] for one in listed] == ["stopped"]
    with pytest.raises(ClientError, match="is in status Stopped"):
        serving.sagemaker.stop_transform_job(TransformJobName="stopped")


@pytest.mark.runs
def test_killed_supervisor_fails_the_job(serving: Serving) -> None:
    slow = serving.create_model("sleeper-2", "import time\ndef model_fn(d): time.sleep(600)\n")
    put(serving, "slow/a.csv", b"1")
    serving.sagemaker.create_transform_job(**request("killed", slow, "slow/"))
    pid = serving.cloud.state_dir / "transforms" / "killed" / "supervisor.pid"
    wait_for(pid.exists, "the supervisor")
    kill(int(pid.read_text().partition(":")[2].strip(" }")))
    assert "the job's supervisor died" in ended(serving, "killed")["FailureReason"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ModelName": "unknown"}, "Could not find model"),
        ({"DataProcessing": {"JoinSource": "Input"}}, "does not support JoinSource"),
        ({"MaxConcurrentTransforms": 17}, "times MaxPayloadInMB must not be greater than 100"),
        ({"MaxPayloadInMB": 101}, "MaxPayloadInMB must not be greater than 100"),
    ],
)
def test_request_that_cannot_run_is_refused(
    serving: Serving, model: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        serving.sagemaker.create_transform_job(**request("refused", model, "whole/", **changes))


@pytest.mark.runs
def test_taken_and_unknown_names_are_refused(serving: Serving, model: str) -> None:
    put(serving, "taken/a.csv", b"1")
    run(serving, "taken", model, "taken/")
    with pytest.raises(ClientError) as caught:
        serving.sagemaker.create_transform_job(**request("taken", model, "taken/"))
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    with pytest.raises(ClientError, match='Could not find requested job with name "unknown"'):
        serving.sagemaker.describe_transform_job(TransformJobName="unknown")
    arn = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/taken"
    serving.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert serving.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]


def test_hosts_above_the_quota_of_the_account_are_refused(serving: Serving, model: str) -> None:
    account = serving.cloud.state_dir / "account.yaml"
    account.write_text("quotas: {ml.m5.large for transform job usage: 1}\n")
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    try:
        with pytest.raises(ClientError, match="for transform job usage' is 1 Instances, with current"):
            serving.sagemaker.create_transform_job(**request("quota", model, "in/", TransformResources=resources))
    finally:
        account.unlink()
