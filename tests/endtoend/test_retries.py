"""`retries` in the job file: a job that hangs is resumed, and trains to the same weights as one that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.endtoend.conftest import Job
from tests.support.jobs.local import launch

SCRIPT = (Path(__file__).parent / "scripts" / "stops_once.py").read_text(encoding="utf-8")
EXPECTED = {
    "computing": ("it is in forward at stop (train.py:", "in stop"),
    "collective": ("it waits in recv at main (train.py:", "in recv"),
    "loader": ("it waits for its loader, whose worker is at stop (train.py:", "in __getitem__"),
}

pytestmark = [pytest.mark.runs, pytest.mark.torch]


def write(job: Job, stop: str, at_most: int = 2) -> None:
    sections = f"""
checkpoint: {{s3: "s3://bucket/checkpoints"}}
environment: {{STOP: {stop}, SMDP_TIMING_S: "0.2"}}
hang: {{after: 3}}
retries: {{on: [hang], at_most: {at_most}}}
"""
    job.write(SCRIPT, ("region: us-east-1", f"region: us-east-1{sections}"), ("{epochs: 2}", "{}"))


def result(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("result")]
    return line.removeprefix("result").strip()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    job = Job(tmp_path_factory.mktemp("undisturbed"))
    write(job, "nowhere")
    ran = launch(job, hosts=2, workers=1)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "no progress" not in ran.stdout
    return result(ran.stdout)


@pytest.mark.parametrize("where", EXPECTED)
def test_job_that_hangs_is_resumed_and_ends_with_the_same_weights(job: Job, undisturbed: str, where: str) -> None:
    write(job, where)
    ran = launch(job, hosts=2, workers=1)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    doing, frame = EXPECTED[where]
    (note,) = [line for line in ran.stderr.splitlines() if "failed: AlgorithmError: hang:" in line]
    assert "rank 1 on algo-2 has made no progress for" in note
    assert doing in note
    assert any(line.startswith("algo-2") and frame in line for line in ran.stdout.splitlines())
    assert "retry 1 of 2 after a failure of the kind hang" in ran.stderr
    assert re.search(r"continues at step (26|51|76)$", ran.stdout, re.MULTILINE)
    assert result(ran.stdout) == undisturbed
    assert "weights" in undisturbed


def test_retries_end_after_their_number(job: Job) -> None:
    job.write(
        'raise RuntimeError("CUDA error: uncorrectable ECC error encountered")\n',
        (
            "region: us-east-1",
            'region: us-east-1\ncheckpoint: {s3: "s3://bucket/checkpoints"}\nretries: {on: [hardware], at_most: 2}',
        ),
    )
    ran = launch(job, hosts=1, workers=1)
    assert ran.returncode == ExitCode.JOB_FAILED
    assert ran.stderr.count("after a failure of the kind hardware") == 2
    assert "retry 2 of 2" in ran.stderr
    assert ran.stdout.count("none was saved: the training starts from the beginning") == 2


def test_error_of_the_script_is_not_retried(job: Job) -> None:
    job.write(
        'raise ValueError("wrong")\n',
        (
            "region: us-east-1",
            'region: us-east-1\ncheckpoint: {s3: "s3://bucket/checkpoints"}\nretries: {on: [hang, hardware]}',
        ),
    )
    ran = launch(job, hosts=1, workers=1)
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "retry" not in ran.stderr
