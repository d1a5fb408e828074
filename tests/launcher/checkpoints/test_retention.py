"""Checkpoints of another library, of which nothing says whether they are complete, and those of a resumed job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode, ServiceProblem
from smdp_launch.jobs.checkpoints.deletion import delete, require_unused, superseded
from smdp_launch.jobs.checkpoints.stored import Kind, State, StoredCheckpoint, StoredCheckpoints, StoredFile
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.localcloud.client.connect import private
from tests.conftest import Command, command_in, write_job
from tests.support.jobs.service import name_of
from tests.support.jobs.stopped import CHECKPOINT, HERE, stored
from tests.support.services.cloud import as_the_service
from tests.support.waiting import wait_for

FILES = ("config.json", "model.safetensors", "optimizer.pt", "trainer_state.json")


def unknown(step: int, names: Sequence[str] = FILES) -> StoredCheckpoint:
    """Of the Trainer of Hugging Face."""
    folder, modified = f"checkpoint-{step}", datetime(2026, 11, 21, tzinfo=timezone.utc)
    files = tuple(StoredFile(f"{folder}/{name}", 10, modified, "tag") for name in names)
    return StoredCheckpoint(folder, Kind.FILES, step, files, State.UNKNOWN)


def whole(step: int) -> StoredCheckpoint:
    return replace(unknown(step), kind=Kind.SHARDED, state=State.WHOLE)


def torn(step: int) -> StoredCheckpoint:
    return replace(unknown(step), kind=Kind.SHARDED, state=State.TORN)


UNDER_WAY = unknown(1500, FILES[:1])


@pytest.mark.parametrize(
    ("checkpoints", "keep_last", "is_in_use", "deleted"),
    [
        ([UNDER_WAY, unknown(1000), unknown(500)], 1, True, [500]),
        ([UNDER_WAY, unknown(1000), unknown(500)], 2, True, []),
        ([unknown(1500), unknown(1000), unknown(500)], 1, False, [1000, 500]),
        ([UNDER_WAY, whole(1000), whole(500)], 1, False, [500]),
        ([UNDER_WAY, whole(1000), whole(500)], 2, True, []),
        ([whole(1500), unknown(1000), unknown(500)], 1, True, [1000, 500]),
        ([whole(1500), unknown(1000), unknown(500)], 2, True, [500]),
        ([torn(2000), whole(1500), torn(1200), whole(1000)], 1, True, [1200, 1000]),
    ],
)
def test_checkpoint_that_may_be_incomplete_supersedes_none(
    checkpoints: list[StoredCheckpoint], keep_last: int, is_in_use: bool, deleted: list[int]
) -> None:
    stored = StoredCheckpoints("s3://bucket/checkpoints", tuple(checkpoints))
    selected = superseded(stored, keep_last, is_in_use=is_in_use)
    assert [one.step for one in selected] == deleted
    if is_in_use and not any(one.is_whole for one in checkpoints):
        require_unused(stored, selected, "job")


class BusyS3:
    """S3 that answers each DeleteObjects with the next of ``errors``: the codes of keys that it does not delete."""

    def __init__(self, *errors: dict[str, str]) -> None:
        self._errors = [*errors]
        self.requests: list[list[str]] = []

    def delete_objects(self, Delete: dict[str, Any], **_: str) -> dict[str, Any]:  # noqa: N803
        self.requests.append([one["Key"].rpartition("/")[2] for one in Delete["Objects"]])
        errors = self._errors.pop(0) if self._errors else {}
        return {
            "Errors": [{"Key": f"a/checkpoint-5/{key}", "Code": code, "Message": "no"} for key, code in errors.items()]
        }

    def clients(self) -> Clients:
        return Clients(None, self, None, 0.0, lambda _: None, lambda _: None, RetryPolicy(first_gap=0.001, total=0.1))


def delete_one(s3: BusyS3) -> None:
    one = unknown(5)
    delete(s3.clients(), StoredCheckpoints("s3://bucket/a", (one,)), [one])


def test_keys_with_temporary_errors_are_deleted_again() -> None:
    s3 = BusyS3({FILES[1]: "SlowDown", FILES[2]: "InternalError"}, {FILES[2]: "InternalError"})
    delete_one(s3)
    assert s3.requests == [[*FILES], [*FILES[1:3]], [FILES[2]]]


def test_key_that_stays_busy_is_a_service_problem() -> None:
    s3 = BusyS3(*({FILES[1]: "SlowDown"} for _ in range(10_000)))
    with pytest.raises(ServiceProblem, match=rf"SlowDown: no \(a/checkpoint-5/{FILES[1]}\) \(\d+ tries in") as problem:
        delete_one(s3)
    assert "checkpoint-5/config.json cannot be deleted" in str(problem.value)
    assert s3.requests[-1] == [FILES[1]]


def test_key_that_is_denied_is_not_deleted_again() -> None:
    s3 = BusyS3({FILES[0]: "SlowDown", FILES[1]: "AccessDenied"})
    with pytest.raises(ServiceProblem, match=rf"{FILES[1]} cannot be deleted: AccessDenied: no; you need"):
        delete_one(s3)
    assert s3.requests == [[*FILES]]


def test_location_may_be_in_use(tmp_path: Path) -> None:
    with private(tmp_path / "cloud") as endpoint:
        s3 = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key).s3
        s3.create_bucket(Bucket="bucket")
        for one in (UNDER_WAY, unknown(1000), unknown(500)):
            for file in one.files:
                s3.put_object(Bucket="bucket", Key=f"saved/{file.name}", Body=b"0123456789")
        environment = {**as_the_service(endpoint, tmp_path), "AWS_DEFAULT_REGION": endpoint.region}
        ran = command_in(tmp_path)("checkpoints", "s3://bucket/saved", "--keep-last", "1", "--yes", env=environment)
        left = {one["Key"].split("/")[1] for one in s3.list_objects_v2(Bucket="bucket")["Contents"]}
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert left == {"checkpoint-1500", "checkpoint-1000"}


#: Writes one checkpoint and never exits.
STAYS = """\
import os, time
open("/opt/ml/checkpoints/step-5", "w").close()
while True:
    time.sleep(0.05)
"""


@pytest.mark.runs
def test_checkpoint_that_a_resumed_job_needs_is_not_deleted(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, CHECKPOINT, STAYS)
    with private(state_folder(job_folder) / "local"):
        assert smdp_launch(*HERE).returncode == ExitCode.OK
        wait_for(lambda: stored(job_folder), "the first checkpoint")
        old = name_of(job_folder)
        assert smdp_launch("stop").returncode == ExitCode.OK
        assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED
        assert smdp_launch("resume", "--detach").returncode == ExitCode.OK
        new = name_of(job_folder)
        ran = smdp_launch("checkpoints", old, "--delete", "5", "--yes")
        assert (ran.returncode, "error[SMDP707]" in ran.stderr) == (ExitCode.REFUSED, True), ran.stdout + ran.stderr
        assert f": {new} has not ended, and resumes from this checkpoint" in ran.stderr
        assert f"(smdp-launch stop {new})" in ran.stderr
        assert smdp_launch("stop").returncode == ExitCode.OK
        assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED
        ran = smdp_launch("checkpoints", old, "--delete", "5", "--yes")
        assert ran.returncode == ExitCode.OK, ran.stderr
