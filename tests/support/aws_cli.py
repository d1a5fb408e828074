"""The AWS CLI with a local cloud."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.planning.prepare import local_run, make_plan
from tests.conftest import ROOT, write_job

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
