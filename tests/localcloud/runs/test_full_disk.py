"""On a full disk every error names the folder, and the results of a job are not lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.catalog.faults import VARIABLE, Fault
from smdp_launch.errors import ExitCode
from smdp_launch.localcloud.client.connect import LocalCloudError, private
from tests.conftest import command_in, write_job
from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.jobs.archives import members
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.small_disk import SmallDisk, mounted
from tests.support.waiting import wait_for

# Writes a model that compression does not make smaller, and waits for the file `go`.
TRAINS = """
    import os, pathlib, time
    pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_bytes(os.urandom(1 << 20))
    print("trained", flush=True)
    while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
        time.sleep(0.05)
"""

# Leaves a folder in the model at SIGTERM: on a full tmpfs a folder still has space.
SAVES_AT_SIGTERM = """
    import os, pathlib, signal, sys, time
    model = pathlib.Path(os.environ["SM_MODEL_DIR"])
    (model / "weights").write_bytes(os.urandom(1 << 20))
    def save(*_):
        (model / "saved").mkdir()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("trained", flush=True)
    while True:
        time.sleep(0.05)
"""

# Reports its first step once the file `go` exists.
REPORTS_A_STEP = """
    import json, os, time
    print("started", flush=True)
    while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
        time.sleep(0.05)
    print(json.dumps({"smdp_event": 1, "event": "step", "time": time.time(), "rank": 0, "step": 1}), flush=True)
    time.sleep(600)
"""

# Of the checkpoint and its two copies during an upload the disk has space for two.
FAILS_AFTER_A_LARGE_CHECKPOINT = """
    import os, pathlib
    pathlib.Path(os.environ["SMDP_CHECKPOINT_DIR"], "last").write_bytes(os.urandom(3 << 20))
    raise SystemExit(3)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def small_cloud(disk: SmallDisk) -> Iterator[Cloud]:
    """A local cloud whose state lies on the small disk."""
    state = disk.folder / "state"
    with ExitStack() as stack:
        yield open_cloud_on(state, stack)
    assert_nothing_runs(str(state))


def waiting_for_space(cloud: Cloud, disk: SmallDisk, name: str) -> dict[str, Any]:
    """Run a job until it has trained its model and has no disk space to upload it; the job's last transition."""
    cloud.start(name, TRAINS)
    cloud.await_log(name, "trained")
    (cloud.output(name) / "go").touch()
    disk.fill()

    def report() -> dict[str, Any] | None:
        step: dict[str, Any] = cloud.describe(name)["SecondaryStatusTransitions"][-1]
        return step if "disk full" in step["StatusMessage"] or step["Status"] == "Failed" else None

    step: dict[str, Any] = wait_for(report, "a job that reports a full disk")
    return step


def fill_completely(cloud: Cloud, disk: SmallDisk, name: str) -> None:
    """Fill the disk, and use the space that is reserved for the job's state."""
    (cloud.state_dir / "jobs" / name / "reserve").unlink()
    disk.fill()


def preserved_model(cloud: Cloud, name: str) -> Path:
    return cloud.state_dir / "jobs" / name / "results/algo-1/ml/model/weights"


def test_server_without_disk_space_reports_the_full_disk(disk: SmallDisk) -> None:
    state = disk.folder / "state"
    with private(state):
        pass  # creates the folder
    disk.fill()
    with pytest.raises(LocalCloudError, match=f"cannot start: disk full in {state}: free space there"), private(state):
        pass


def test_state_folder_without_disk_space_reports_the_full_disk(disk: SmallDisk) -> None:
    disk.fill()
    state = disk.folder / "state"
    with pytest.raises(LocalCloudError, match=f"cannot start: disk full in {state}: free space there"), private(state):
        pass


@pytest.mark.parametrize("free_kib", [0, 4, 40])
def test_launch_on_a_full_disk_fails_without_retry(disk: SmallDisk, free_kib: int) -> None:
    folder = disk.folder / "project"
    folder.mkdir()
    write_job(folder)
    smdp_launch = command_in(folder)
    assert smdp_launch("local", "up").returncode == 0
    assert smdp_launch("local", "down").returncode == 0
    reserved = disk.folder / "reserved"
    reserved.write_bytes(bytes(free_kib * 1024))
    disk.fill()
    reserved.unlink()
    ran = smdp_launch("launch", "--local", "--hosts", "1", "--workers-per-host", "1")
    assert ran.returncode in {ExitCode.ENVIRONMENT, ExitCode.SERVICE}
    assert f"disk full in {folder}/.smdp/local: free space there" in ran.stderr
    assert "retrying" not in ran.stderr


def test_object_without_disk_space_leaves_the_old_object_and_no_files(small_cloud: Cloud, disk: SmallDisk) -> None:
    s3 = small_cloud.s3
    s3.put_object(Bucket=BUCKET, Key="kept", Body=b"old")
    half = b"n" * (7 << 19)  # the disk has space for one copy, but not for another one while it is received
    for key in ("kept", "new", "new"):
        with pytest.raises(ClientError, match=f"disk full in {small_cloud.state_dir}: free space there") as refused:
            s3.put_object(Bucket=BUCKET, Key=key, Body=half + half)
        assert refused.value.response["Error"]["Code"] == "DiskFull"
    assert small_cloud.keys() == ["kept"]
    assert small_cloud.object("kept") == b"old"
    s3.put_object(Bucket=BUCKET, Key="new", Body=half)
    assert small_cloud.object("new") == half
    assert list((small_cloud.state_dir / "s3" / BUCKET).rglob("*tmp-*")) == []


def test_job_without_disk_space_is_refused_and_leaves_no_files(small_cloud: Cloud, disk: SmallDisk) -> None:
    request = small_cloud.request("refused", "print('trained')")
    disk.fill()
    with pytest.raises(ClientError, match="disk full in"):
        small_cloud.sagemaker.create_training_job(**request)
    assert list((small_cloud.state_dir / "jobs").iterdir()) == []
    disk.free()
    small_cloud.sagemaker.create_training_job(**request)
    assert small_cloud.wait("refused")["TrainingJobStatus"] == "Completed"


def test_model_upload_waits_for_disk_space(small_cloud: Cloud, disk: SmallDisk) -> None:
    step = waiting_for_space(small_cloud, disk, "waits")
    hosts = small_cloud.state_dir / "jobs/waits/hosts"
    assert step["Status"] == "Uploading"
    assert step["StatusMessage"].startswith(f"disk full in {small_cloud.state_dir}: free space there; ")
    assert str(hosts) in step["StatusMessage"]
    assert (hosts / "algo-1/ml/model/weights").stat().st_size == 1 << 20
    disk.free()
    assert small_cloud.wait("waits")["TrainingJobStatus"] == "Completed"
    assert members(small_cloud.object("out/waits/output/model.tar.gz")) == ["weights"]
    assert not hosts.exists()


def test_stopped_model_upload_preserves_the_model(small_cloud: Cloud, disk: SmallDisk) -> None:
    waiting_for_space(small_cloud, disk, "stopped")
    small_cloud.sagemaker.stop_training_job(TrainingJobName="stopped")
    job = small_cloud.wait("stopped")
    assert job["TrainingJobStatus"] == "Failed"
    results = small_cloud.state_dir / "jobs/stopped/results"
    assert job["FailureReason"] == (
        f"InternalServerError: disk full in {small_cloud.state_dir}: free space there, then try again; "
        f"the job's results are in {results}"
    )
    assert preserved_model(small_cloud, "stopped").stat().st_size == 1 << 20
    assert [path.name for path in results.rglob("*") if path.is_file()] == ["weights"]


def test_job_that_is_stopped_on_a_full_disk_saves_and_uploads_its_model(small_cloud: Cloud, disk: SmallDisk) -> None:
    small_cloud.start("full", SAVES_AT_SIGTERM)
    small_cloud.await_log("full", "trained")
    folder = small_cloud.state_dir / "jobs/full"
    (folder / "prepared").write_text("{}")
    fill_completely(small_cloud, disk, "full")
    (folder / "prepared").rename(folder / "stop.json")  # StopTrainingJob needs space for this file
    wait_for((folder / "hosts/algo-1/ml/model/saved").exists, "the script's reaction to SIGTERM")
    disk.free()
    assert small_cloud.wait("full")["TrainingJobStatus"] == "Stopped"
    assert members(small_cloud.object("out/full/output/model.tar.gz")) == ["saved", "weights"]


def test_interrupted_job_waits_for_capacity_although_its_state_cannot_be_written(small_cloud: Cloud) -> None:
    fault = Fault(kind="spot", host="algo-1", rank=0, seconds=600, step=1)
    request = small_cloud.request("away", REPORTS_A_STEP)
    request["Environment"][VARIABLE] = fault.to_text()
    small_cloud.sagemaker.create_training_job(**request)
    small_cloud.await_log("away", "started")
    folder = small_cloud.state_dir / "jobs/away"
    (folder / "state.json").rename(folder / "kept")
    (folder / "state.json").mkdir()  # no file can replace it
    (small_cloud.output("away") / "go").touch()
    wait_for(lambda: not (folder / "hosts").exists(), "the removal of the hosts")
    (folder / "state.json").rmdir()
    (folder / "kept").rename(folder / "state.json")
    small_cloud.sagemaker.stop_training_job(TrainingJobName="away")
    job = small_cloud.wait("away")
    assert job["TrainingJobStatus"] == "Stopped"
    assert "Interrupted" in [one["Status"] for one in job["SecondaryStatusTransitions"]]


def test_failed_job_preserves_a_checkpoint_that_cannot_be_uploaded(small_cloud: Cloud) -> None:
    config = {"S3Uri": f"s3://{BUCKET}/checkpoints"}
    job = small_cloud.run("fails", FAILS_AFTER_A_LARGE_CHECKPOINT, CheckpointConfig=config)
    results = small_cloud.state_dir / "jobs/fails/results"
    assert job["FailureReason"].startswith("AlgorithmError: ")
    assert job["FailureReason"].endswith(f", exit code: 3; the job's results are in {results}")
    assert (results / "algo-1/ml/checkpoints/last").stat().st_size == 3 << 20
    assert [path.name for path in results.rglob("*") if path.is_file()] == ["last"]


def test_model_is_preserved_when_the_supervisor_has_an_error(small_cloud: Cloud) -> None:
    small_cloud.start("error", SAVES_AT_SIGTERM)
    small_cloud.await_log("error", "trained")
    folder = small_cloud.state_dir / "jobs/error"
    (folder / "prepared").write_text("[1]")  # not the object that the supervisor reads
    (folder / "prepared").rename(folder / "stop.json")
    assert small_cloud.wait("error")["FailureReason"] == (
        f"InternalServerError: the local cloud failed; see {folder}/supervisor.log; "
        f"the job's results are in {folder}/results"
    )
    assert preserved_model(small_cloud, "error").stat().st_size == 1 << 20


def test_model_is_preserved_when_the_supervisor_is_killed(small_cloud: Cloud, disk: SmallDisk) -> None:
    waiting_for_space(small_cloud, disk, "killed")
    os.kill(small_cloud.supervisor("killed"), signal.SIGKILL)
    disk.free()
    job = small_cloud.wait("killed")
    assert job["FailureReason"].endswith(f"results are in {small_cloud.state_dir}/jobs/killed/results")
    assert preserved_model(small_cloud, "killed").stat().st_size == 1 << 20


def test_a_launch_that_cannot_be_recorded_names_the_folder(disk: SmallDisk) -> None:
    folder = disk.folder / "project"
    folder.mkdir()
    write_job(folder)
    smdp_launch = command_in(folder)
    with private(disk.folder.parent / "state"):
        environment = {**os.environ, "SMDP_LOCAL_STATE": str(disk.folder.parent / "state")}
        (folder / ".smdp").mkdir(mode=0o700)
        (folder / ".smdp/.gitignore").write_text("*\n")
        disk.fill()
        ran = smdp_launch("launch", "--local", "--hosts", "1", "--workers-per-host", "1", env=environment)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert f"disk full in {folder}/.smdp: free space there" in ran.stderr
