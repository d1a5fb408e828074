"""Commands about a job whose files in the local cloud were deleted or damaged."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import LOCAL, record_launch
from smdp_launch.localcloud.layout import JobFolder
from tests.conftest import Command

JOB = "gone-20261201000000-0000"


@pytest.fixture
def local_job(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """A local job in the history of the folder; its own folder is missing."""
    monkeypatch.chdir(job_folder)
    record_launch(JOB, LOCAL, "job.yaml", "0" * 64, datetime.now(timezone.utc), state=".smdp/local")
    jobs = job_folder / ".smdp" / "local" / "jobs"
    for folder in (jobs.parent, jobs):
        folder.mkdir(mode=0o700)
    return JobFolder(jobs / JOB)


@pytest.mark.parametrize("command", ["status", "download"])
def test_deleted_local_job_is_named_as_such(local_job: JobFolder, smdp_launch: Command, command: str) -> None:
    ran = smdp_launch(command, JOB)
    assert ran.returncode == ExitCode.SERVICE
    assert f"{local_job.name} cannot be described: " in ran.stderr
    assert ran.stderr.endswith("; its files in the folder of the local cloud were deleted: launch it again\n")


def test_damaged_state_is_reported_without_a_retry(local_job: JobFolder, smdp_launch: Command) -> None:
    local_job.root.mkdir(mode=0o700)
    local_job.state.touch(mode=0o600)
    ran = smdp_launch("status", JOB)
    assert ran.returncode == ExitCode.SERVICE
    damaged = f"{local_job.state} is missing or damaged. Remove the folder {local_job.root}."
    assert ran.stderr == f"smdp-launch: job {JOB} cannot be described: StateDamaged: {damaged}\n"
