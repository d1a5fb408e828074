"""AWS CLI version 2 with the local cloud: create a job, show its log, stop it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import private
from tests.conftest import ROOT
from tests.support.aws_cli import Aws, ended, prepare, request_file
from tests.support.waiting import wait_for

AWS2 = Path(os.environ.get("SMDP_TEST_AWS2", ROOT / ".venv-clients" / "aws2" / "aws"))
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not AWS2.exists(), reason="AWS CLI 2 is not installed: `sh tools/aws_cli_v2.sh` shows why"),
]
GROUP = "/aws/sagemaker/TrainingJobs"
STEPS = "import time\nfor step in range(4):\n    print('step', step, flush=True)\n    time.sleep(1)\n"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    with private(tmp_path / "state") as endpoint:
        # Versions before 2.13 do not read AWS_ENDPOINT_URL.
        yield Aws(endpoint, tmp_path, AWS2, ("--endpoint-url", endpoint.url))


def steps(output: str) -> list[str]:
    return [line[line.index("step ") :] for line in output.splitlines() if "] step " in line]


def test_logs_tail_shows_running_and_ended_job(aws: Aws, tmp_path: Path) -> None:
    job, request = request_file(tmp_path, STEPS)
    prepare(aws, tmp_path, job)
    arn = aws.json("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")["TrainingJobArn"]
    assert arn.endswith(f"training-job/{job}")
    wait_for(lambda: aws.json("logs", "describe-log-groups")["logGroups"], "the log group")
    follow = aws.command("logs", "tail", GROUP, "--follow", "--since", "10m", "--format", "short")
    # With a pipe it would buffer the lines.
    environment = aws.environment | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(follow, env=environment, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        lines = []
        while len(steps("".join(lines))) < 8:
            lines.append(tail.stdout.readline())
            assert lines[-1], lines
        tail.terminate()
    assert sorted(steps("".join(lines))) == sorted(2 * [f"step {number}" for number in range(4)])
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \[algo-1", line) for line in lines)
    assert ended(aws, job)["TrainingJobStatus"] == "Completed"
    tailed = ("logs", "tail", GROUP, "--since", "1h")
    detailed = aws.run(*tailed, "--log-stream-name-prefix", job).stdout
    assert len(steps(detailed)) == 8
    assert all(f" {job}/algo-1-" in line for line in detailed.splitlines() if "] step " in line)
    filtered = aws.run(*tailed, "--filter-pattern", '"step 2"', "--format", "short").stdout
    assert steps(filtered) == ["step 2", "step 2"]
    assert aws.run(*tailed, "--log-stream-names", f"{job}/none", check=False).returncode != 0
    model = aws.json("sagemaker", "list-training-jobs", "--status-equals", "Completed")["TrainingJobSummaries"]
    assert [one["TrainingJobName"] for one in model] == [job]
    aws.run("s3", "cp", f"s3://bucket/output/{job}/source/sourcedir.tar.gz", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sourcedir.tar.gz").read_bytes()


def test_a_job_is_stopped(aws: Aws, tmp_path: Path) -> None:
    job, request = request_file(tmp_path, "import time\ntime.sleep(300)\n")
    prepare(aws, tmp_path, job)
    aws.run("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    aws.run("sagemaker", "stop-training-job", "--training-job-name", job)
    assert ended(aws, job)["TrainingJobStatus"] == "Stopped"
    described = json.loads(aws.run("sagemaker", "describe-training-job", "--training-job-name", job).stdout)
    assert described["SecondaryStatus"] == "Stopped"
