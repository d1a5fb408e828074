"""Processes of a running job, or its server, are killed."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.services.cloud import BUCKET, Cloud, is_running, kill, processes_with
from tests.support.waiting import wait_for

SLEEPS = """
    import os, time
    print("worker", os.environ["RANK"], "is running", flush=True)
    time.sleep(600)
"""


def workers(cloud: Cloud) -> list[int]:
    """The process ids, on this machine, of the workers of all hosts."""
    found = []
    for pid in processes_with(cloud.endpoint.access_key):
        if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


def rank_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(entry[5:].decode() for entry in variables if entry.startswith(b"RANK="))


def started(cloud: Cloud, name: str, hosts: int = 2) -> None:
    cloud.start(name, SLEEPS, hosts=hosts)
    for rank in range(hosts):
        cloud.await_log(name, f"worker {rank} is running")


def test_a_killed_worker_fails_the_job_naming_host_and_rank(either_cloud: Cloud) -> None:
    started(either_cloud, "worker")
    worker = next(pid for pid in workers(either_cloud) if rank_of(pid) == "1")
    os.kill(worker, signal.SIGKILL)
    job = either_cloud.wait("worker")  # the other worker would run for ten minutes
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError: rank 1 on algo-2 was killed by SIGKILL")
    assert job["FailureReason"].endswith(", exit code: 137")


def test_failure_reason_survives_a_failed_output_upload(cloud: Cloud) -> None:
    script = """
        import os, pathlib, time
        pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "large").write_bytes(os.urandom(100_000))
        print("worker 0 is running", flush=True)
        time.sleep(600)
    """
    cloud.start("full", script)
    cloud.await_log("full", "worker 0 is running")
    # From now on the supervisor cannot write larger files, as on a disk that has filled up.
    resource.prlimit(cloud.supervisor("full"), resource.RLIMIT_FSIZE, (20_000, 20_000))
    os.kill(workers(cloud)[0], signal.SIGKILL)
    assert cloud.wait("full")["FailureReason"].startswith("AlgorithmError: rank 0 on algo-1 was killed by SIGKILL")


def test_failed_model_upload_fails_the_job_with_the_system_error(cloud: Cloud) -> None:
    script = """
        import os, pathlib, time
        pathlib.Path(os.environ["SM_MODEL_DIR"], "large").write_bytes(os.urandom(100_000))
        print("worker 0 is running", flush=True)
        while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
            time.sleep(0.05)
    """
    cloud.start("unkept", script)
    cloud.await_log("unkept", "worker 0 is running")
    resource.prlimit(cloud.supervisor("unkept"), resource.RLIMIT_FSIZE, (20_000, 20_000))
    (cloud.output("unkept") / "go").touch()
    job = cloud.wait("unkept")
    assert job["TrainingJobStatus"] == "Failed"
    assert "File too large" in job["FailureReason"]


def test_a_killed_host_fails_the_job(either_cloud: Cloud) -> None:
    started(either_cloud, "host")
    spec = str(either_cloud.state_dir / "jobs/host/hosts/algo-2/spec.json")
    monitor = next(pid for pid in processes_with(spec))
    os.kill(monitor, signal.SIGKILL)
    job = either_cloud.wait("host")
    assert job["FailureReason"] == "AlgorithmError: algo-2 was killed by SIGKILL, exit code: 137"


def test_a_killed_supervisor_fails_the_job_and_leaves_no_host(either_cloud: Cloud) -> None:
    started(either_cloud, "supervisor")
    started_workers = workers(either_cloud)
    os.kill(either_cloud.supervisor("supervisor"), signal.SIGKILL)
    job = either_cloud.wait("supervisor")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("InternalServerError: the job's supervisor died")
    assert not (either_cloud.state_dir / "jobs/supervisor/hosts").exists()
    wait_for(lambda: not any(is_running(pid) for pid in started_workers), "the end of the workers")


@pytest.mark.parametrize("status", ["Training", "Stopping"])
def test_results_are_preserved_when_the_supervisor_is_killed(cloud: Cloud, status: str) -> None:
    script = """
        import os, pathlib, signal, time
        signal.signal(signal.SIGTERM, lambda *_: None)
        pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("trained")
        print("worker 0 is running", flush=True)
        time.sleep(600)
    """
    name = f"killed-{status.lower()}"
    cloud.start(name, script)
    cloud.await_log(name, "worker 0 is running")
    if status == "Stopping":
        cloud.sagemaker.stop_training_job(TrainingJobName=name)
    wait_for(lambda: cloud.describe(name)["SecondaryStatus"] == status, f"the status {status}")
    os.kill(cloud.supervisor(name), signal.SIGKILL)
    folder = cloud.state_dir / "jobs" / name
    assert cloud.wait(name)["FailureReason"].endswith(f"; the job's results are in {folder}/results")
    assert (folder / "results/algo-1/ml/model/weights").read_text() == "trained"
    assert not (folder / "hosts").exists()


def test_job_continues_when_the_server_is_killed(open_cloud: Callable[[], Cloud]) -> None:
    script = f"""
        import os, pathlib, time
        print("before", flush=True)
        while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
            time.sleep(0.05)
        import boto3
        boto3.client("s3").put_object(Bucket="{BUCKET}", Key="after", Body=b"the restart")
        pathlib.Path(os.environ["SM_MODEL_DIR"], "m").write_text("m")
    """
    first = open_cloud()
    first.start("outlives", script)
    first.await_log("outlives", "before")
    kill(first.endpoint.pid)
    second = open_cloud()
    assert second.endpoint.pid != first.endpoint.pid
    assert second.describe("outlives")["TrainingJobStatus"] == "InProgress"
    (second.output("outlives") / "go").touch()
    job = second.wait("outlives")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert second.object("after") == b"the restart"
    assert second.keys("out/outlives") == ["out/outlives/output/model.tar.gz"]


@pytest.mark.runs
def test_job_that_ends_without_server_starts_one(open_cloud: Callable[[], Cloud]) -> None:
    script = """
        import os, pathlib, time
        pathlib.Path(os.environ["SM_MODEL_DIR"], "m").write_text("m")
        print("before", flush=True)
        while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
            time.sleep(0.05)
    """
    first = open_cloud()
    first.start("alone", script)
    first.await_log("alone", "before")
    kill(first.endpoint.pid)
    (first.output("alone") / "go").touch()
    state = first.state_dir / "jobs/alone/state.json"
    wait_for(lambda: '"Completed"' in state.read_text(), "the end of the job")
    assert open_cloud().keys("out/alone") == ["out/alone/output/model.tar.gz"]


@pytest.mark.runs
def test_next_server_finalizes_job_of_dead_supervisor(open_cloud: Callable[[], Cloud]) -> None:
    first = open_cloud()
    started(first, "both", hosts=1)
    kill(first.endpoint.pid)
    kill(first.supervisor("both"))
    second = open_cloud()
    assert second.wait("both")["FailureReason"].startswith("InternalServerError")


def test_daemon_processes_end_with_the_job(either_cloud: Cloud) -> None:
    script = """
        import os, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    """
    job = either_cloud.run("daemon", script)
    assert job["TrainingJobStatus"] == "Completed"
    assert processes_with(either_cloud.endpoint.access_key) == []
