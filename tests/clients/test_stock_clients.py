"""The unmodified AWS CLI with the local cloud. `make test-clients` makes its environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import private
from tests.support.aws_cli import AWS, Aws, ended, prepare, request_file
from tests.support.waiting import wait_for

pytestmark = pytest.mark.clients


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    assert AWS.exists(), f"{AWS} is not there: run `make test-clients`"
    with private(tmp_path / "state") as endpoint:
        yield Aws(endpoint, tmp_path)


def test_job_runs_from_create_to_model(aws: Aws, tmp_path: Path) -> None:
    script = (
        "import os\nprint('hello from', os.environ['RANK'])\nopen(os.environ['SM_MODEL_DIR'] + '/m', 'w').write('x')\n"
    )
    job, request = request_file(tmp_path, script)
    prepare(aws, tmp_path, job)
    arn = aws.json("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")["TrainingJobArn"]
    assert arn.endswith(f"training-job/{job}")
    described = ended(aws, job)
    assert described["TrainingJobStatus"] == "Completed"
    assert [one["Status"] for one in described["SecondaryStatusTransitions"]][-1] == "Completed"
    group = ("--log-group-name", "/aws/sagemaker/TrainingJobs")
    streams = aws.json("logs", "describe-log-streams", *group, "--log-stream-name-prefix", job)["logStreams"]
    events = aws.json("logs", "get-log-events", *group, "--log-stream-name", streams[0]["logStreamName"])["events"]
    assert {"[algo-1:0] hello from 0", "[algo-1:1] hello from 1"} <= {one["message"] for one in events}
    model = tmp_path / "model.tar.gz"
    aws.run("s3", "cp", described["ModelArtifacts"]["S3ModelArtifacts"], str(model))
    listed = subprocess.run(["tar", "-tzf", model], check=True, capture_output=True, text=True)
    assert listed.stdout.split() == ["m"]


def test_a_job_is_stopped(aws: Aws, tmp_path: Path) -> None:
    job, request = request_file(tmp_path, "import time\ntime.sleep(300)\n")
    prepare(aws, tmp_path, job)
    aws.run("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    aws.run("sagemaker", "stop-training-job", "--training-job-name", job)
    assert ended(aws, job)["TrainingJobStatus"] == "Stopped"
    listed = aws.json("sagemaker", "list-training-jobs", "--status-equals", "Stopped")["TrainingJobSummaries"]
    assert [one["TrainingJobName"] for one in listed] == [job]


def test_filter_log_events_filters_lines_of_job(aws: Aws, tmp_path: Path) -> None:
    """The test makes the same call as `aws logs tail` of the AWS CLI 2."""
    job, request = request_file(tmp_path, "import os\nprint('line of', os.environ['RANK'])\n")
    prepare(aws, tmp_path, job)
    aws.run("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    ended(aws, job)
    command = ("logs", "filter-log-events", "--log-group-name", "/aws/sagemaker/TrainingJobs", "--interleaved")
    chosen = (*command, "--start-time", "0", "--log-stream-name-prefix", f"{job}/")
    events = aws.json(*chosen)["events"]
    assert [one["timestamp"] for one in events] == sorted(one["timestamp"] for one in events)
    messages = [one["message"] for one in events if "line of" in one["message"]]
    assert sorted(messages) == ["[algo-1:0] line of 0", "[algo-1:1] line of 1"]
    filtered = aws.json(*chosen, "--filter-pattern", '"line of 1"')["events"]
    assert [one["message"] for one in filtered] == ["[algo-1:1] line of 1"]


def test_model_is_served_from_creation_to_deletion(aws: Aws, tmp_path: Path) -> None:
    script = "def model_fn(d): return 2\ndef predict_fn(data, model): return [model * one for one in data]\n"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text(script)
    subprocess.run(["tar", "-czf", tmp_path / "model.tar.gz", "-C", tmp_path, "code"], check=True)
    aws.run("s3", "mb", "s3://bucket")
    aws.run("s3", "cp", str(tmp_path / "model.tar.gz"), "s3://bucket/model.tar.gz")
    container = "Image=image,ModelDataUrl=s3://bucket/model.tar.gz"
    role = ("--execution-role-arn", "arn:aws:iam::000000000000:role/serving")
    aws.run("sagemaker", "create-model", "--model-name", "double", "--primary-container", container, *role)
    variant = "VariantName=AllTraffic,ModelName=double,InstanceType=ml.m5.large,InitialInstanceCount=1"
    config = ("--endpoint-config-name", "double")
    aws.run("sagemaker", "create-endpoint-config", *config, "--production-variants", variant)
    name = ("--endpoint-name", "double")
    aws.run("sagemaker", "create-endpoint", *name, *config)

    def status() -> str:
        return str(aws.json("sagemaker", "describe-endpoint", *name)["EndpointStatus"])

    wait_for(lambda: status() != "Creating", "the endpoint")
    assert status() == "InService"
    (tmp_path / "body.json").write_text("[1, 2]")
    body = ("--body", f"fileb://{tmp_path}/body.json", "--content-type", "application/json")
    answer = aws.json("sagemaker-runtime", "invoke-endpoint", *name, *body, str(tmp_path / "answer.json"))
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert json.loads((tmp_path / "answer.json").read_text()) == [2, 4]
    aws.run("sagemaker", "delete-endpoint", *name)
    failed = aws.run("sagemaker-runtime", "invoke-endpoint", *name, *body, str(tmp_path / "no.json"), check=False)
    assert "(ValidationError)" in failed.stderr


def test_account_calls_are_answered(aws: Aws, tmp_path: Path) -> None:
    assert aws.json("sts", "get-caller-identity")["Account"] == "000000000000"
    assert aws.json("iam", "get-role", "--role-name", "any")["Role"]["RoleName"] == "any"
    assert len(aws.json("ec2", "describe-subnets")["Subnets"]) == 1
    assert aws.json("efs", "describe-file-systems")["FileSystems"] == []
    assert aws.json("cloudwatch", "list-metrics")["Metrics"] == []
    quotas = aws.json("service-quotas", "list-service-quotas", "--service-code", "sagemaker")["Quotas"]
    assert "ml.p4d.24xlarge for training job usage" in [one["QuotaName"] for one in quotas]


def test_errors_have_the_codes_of_aws(aws: Aws, tmp_path: Path) -> None:
    job, request = request_file(tmp_path, "print(1)\n")
    unknown = aws.run("sagemaker", "describe-training-job", "--training-job-name", "unknown", check=False)
    assert "(ValidationException)" in unknown.stderr
    prepare(aws, tmp_path, job)
    aws.run("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    again = aws.run("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}", check=False)
    assert "(ResourceInUse)" in again.stderr
    missing = aws.run("s3api", "head-object", "--bucket", "bucket", "--key", "nothing", check=False)
    assert "(404)" in missing.stderr


def test_multipart_objects_are_read_back_unchanged(aws: Aws, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(1 << 20) * 20)  # the command line splits above 8 MiB
    aws.run("s3", "mb", "s3://parts")
    aws.run("s3", "cp", str(large), "s3://parts/a/large")
    aws.run("s3", "cp", "s3://parts/a/large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    aws.run("s3", "rm", "s3://parts/a/large")
    assert aws.run("s3", "ls", "s3://parts/a/", check=False).stdout == ""
