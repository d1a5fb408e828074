"""The unmodified AWS CLI with the local cloud. `make test-clients` makes its environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.localcloud.client.connect import Endpoint, private
from smdp_launch.planning.prepare import local_run, make_plan
from tests.conftest import ROOT, write_job

pytestmark = pytest.mark.clients
AWS = Path(os.environ.get("SMDP_TEST_AWS", ROOT / ".venv-clients" / "bin" / "aws"))


@dataclass
class Aws:
    """Runs `aws` with the local cloud's address and keys, and no settings of the user."""

    endpoint: Endpoint
    home: Path
    program: Path = AWS
    options: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "AWS_ACCESS_KEY_ID": self.endpoint.access_key,
            "AWS_SECRET_ACCESS_KEY": self.endpoint.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint.url,
            "AWS_REGION": self.endpoint.region,
            "AWS_DEFAULT_REGION": self.endpoint.region,
        }

    def command(self, *arguments: str) -> list[str]:
        return [str(self.program), *self.options, *arguments]

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, check=check, timeout=120
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*arguments, "--output", "json").stdout)
        return answer


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    assert AWS.exists(), f"{AWS} is not there: run `make test-clients`"
    with private(tmp_path / "state") as endpoint:
        yield Aws(endpoint, tmp_path)


def request_file(folder: Path, script: str, max_run: int = 600) -> tuple[str, Path]:
    """The request that `launch --local` would send, as a file for --cli-input-json."""
    path = write_job(folder, script=script)
    checked = check_job(path, LocalRequest())
    run = local_run(checked, LocalRequest(1, 2), 2)
    plan = make_plan(checked, datetime.now(timezone.utc), 1, run)
    file = folder / "request.json"
    file.write_text(json.dumps(plan.request | {"StoppingCondition": {"MaxRuntimeInSeconds": max_run}}))
    return plan.job, file


def prepare(aws: Aws, folder: Path, job: str) -> None:
    """The steps before create-training-job: a bucket, the data and the source archive."""
    archive = folder / "sourcedir.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", folder / "src", "train.py"], check=True)
    aws.run("s3", "mb", "s3://bucket")
    aws.run("s3", "sync", str(folder / "data"), "s3://bucket/train")
    aws.run("s3", "cp", str(archive), f"s3://bucket/output/{job}/source/sourcedir.tar.gz")


def ended(aws: Aws, job: str) -> dict[str, Any]:
    """The job's description when it has ended; `aws sagemaker wait` polls only every two minutes."""
    deadline = time.monotonic() + 100
    while True:
        described = aws.json("sagemaker", "describe-training-job", "--training-job-name", job)
        if described["TrainingJobStatus"] in {"Completed", "Failed", "Stopped"}:
            return described
        assert time.monotonic() < deadline, described
        time.sleep(0.5)


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
