"""A checkpoint location that several jobs use, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.errors import ExitCode, Refused
from smdp_launch.jobs.preflight.check import Account
from smdp_launch.jobs.preflight.checkpoints import alone
from smdp_launch.jobs.records.history import STATE_FOLDER, state_folder
from smdp_launch.jobs.resume import AlreadyResumed, prepare
from smdp_launch.jobs.service.clients import connect_endpoint
from smdp_launch.jobs.status.checkpoint_users import has_own_location, users_of
from smdp_launch.localcloud.client.connect import private
from smdp_launch.rules.base.facts import Problem
from tests.conftest import Command, write_job
from tests.support.jobs.plans import plan_of
from tests.support.jobs.service import name_of
from tests.support.jobs.stopped import CHECKPOINT, HERE
from tests.support.waiting import wait_for

SHARED = CHECKPOINT.replace('s3: "s3://bucket/checkpoints"', 's3: "s3://bucket/checkpoints", shared: true')
WHERE = "s3://bucket/checkpoints"
#: Saves one more checkpoint in each run, and never exits.
SAVES = """\
import os, time
folder = "/opt/ml/checkpoints"
open(os.path.join(folder, f"step-{len(os.listdir(folder)) + 1}"), "w").close()
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("job", "where", "is_own"),
    [
        ("small-20261121010203-beef", "s3://b/ck/small-20261121010203-beef", True),
        ("small-20261121050607-cafe", "s3://b/ck/small-20261121010203-beef/", False),
        ("run7-20261121010203-beef", "s3://b/ck/run7", False),
        ("sweep-1121010203-beef-001-a1b2", "s3://b/ck/sweep-1121010203-beef", True),
        ("small-20261121010203-beef", "s3://b/ck", False),
        ("small-20261121010203-beef", "s3://b/ck/other-20261121010203-beef", False),
        ("small-20261121010203-beef", "s3://b", False),
    ],
)
def test_location_of_a_job_contains_its_name(job: str, where: str, is_own: bool) -> None:
    assert has_own_location(job, where) == is_own


def test_job_that_resumes_another_one_has_its_location() -> None:
    old, new = "small-20261121010203-beef", "small-20261121050607-cafe"
    assert has_own_location(new, f"s3://b/ck/{old}", resumes=True)
    assert not has_own_location(new, "s3://b/ck/other-20261121010203-beef", resumes=True)


def stored(folder: Path, name: str) -> Path:
    return folder / STATE_FOLDER / "local" / "s3" / "bucket" / "checkpoints" / name


@pytest.mark.runs
def test_running_job_keeps_the_location_from_other_jobs(smdp_launch: Command, job_folder: Path) -> None:
    """An ended job is not resumed while another one uses its location, and does not delete what that one needs."""
    path = write_job(job_folder, SHARED, SAVES)
    with private(state_folder(job_folder) / "local") as endpoint:
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        assert smdp_launch(*HERE).returncode == ExitCode.OK
        first = name_of(job_folder)
        wait_for(stored(job_folder, "step-1").exists, "the checkpoint of the first job")
        (problem,) = alone(Account(plan_of(path), clients))
        assert isinstance(problem, Problem)
        assert f"{first} has not ended and uses this location" in problem.message
        assert [list(users_of(clients, one)) for one in (WHERE, f"{WHERE}/below", "s3://bucket/")] == [[first]] * 3
        assert list(users_of(clients, "s3://bucket/check")) == []
        assert smdp_launch("stop").returncode == ExitCode.OK
        assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED
        assert list(alone(Account(plan_of(path), clients))) == ["no running job uses the location"]

        assert smdp_launch(*HERE).returncode == ExitCode.OK
        second = name_of(job_folder)
        wait_for(stored(job_folder, "step-2").exists, "the checkpoint of the second job, which continues")
        ran = smdp_launch("resume", first)
        assert (ran.returncode, "error[SMDP710]" in ran.stderr) == (ExitCode.REFUSED, True), ran.stdout + ran.stderr
        assert f"{WHERE}: {second} has not ended and uses it" in ran.stderr
        assert smdp_launch("resume", first, "--dry-run", "--ignore", "SMDP710").returncode == ExitCode.OK
        ran = smdp_launch("checkpoints", first, "--delete", "2", "--yes")
        assert (ran.returncode, "error[SMDP707]" in ran.stderr) == (ExitCode.REFUSED, True), ran.stdout + ran.stderr
        assert f": {second} has not ended, and resumes from this checkpoint" in ran.stderr
        assert smdp_launch("stop").returncode == ExitCode.OK
        assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED
        ran = smdp_launch("resume", first, "--dry-run")
        assert ran.returncode == ExitCode.OK, ran.stderr


@pytest.mark.runs
def test_resume_needs_the_answer_of_the_search(smdp_launch: Command, job_folder: Path) -> None:
    with private(state_folder(job_folder) / "local") as endpoint:
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        write_job(job_folder, SHARED, SAVES)
        assert smdp_launch(*HERE).returncode == ExitCode.OK
        job = name_of(job_folder)
        wait_for(stored(job_folder, "step-1").exists, "the checkpoint")
        other = clients.sagemaker.describe_training_job(TrainingJobName=job)
        assert smdp_launch("stop").returncode == ExitCode.OK
        assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED

        def late(**_: Any) -> dict[str, Any]:
            """The search shows a job as running for a minute after its end."""
            return {"Results": [{"TrainingJob": {**other, "TrainingJobName": job}}]}

        clients.sagemaker.search = late
        assert prepare(clients, job).checkpoints is not None

        def denied(**_: Any) -> dict[str, Any]:
            error = {"Code": "AccessDeniedException", "Message": "not authorized to perform: sagemaker:Search"}
            raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}, "Search")

        clients.sagemaker.search = denied
        for retry in (0, 1):
            with pytest.raises(Refused, match="is not resumed") as caught:
                prepare(clients, job, retry)
            assert not isinstance(caught.value, AlreadyResumed)
            (problem,) = caught.value.diagnostics
            assert problem.code == "SMDP710"
            assert "whether a running job uses it is unknown" in problem.message
            assert "sagemaker:Search" in str(problem.help)
        assert prepare(clients, job, alone=False).checkpoints is not None
