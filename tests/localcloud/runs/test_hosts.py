"""Inside a simulated host: the files and variables of a script, and its isolation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import isolation, private
from smdp_launch.localcloud.groups import host_names
from smdp_launch.localcloud.host_log import HostLog
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.localcloud.isolation.namespaces import View
from smdp_launch.localcloud.processes import handles_sigterm
from smdp_launch.localcloud.runtime import port_lease
from smdp_launch.localcloud.runtime.host_process import HostSpec
from smdp_launch.localcloud.runtime.started_host import Host, wait_until
from smdp_launch.localcloud.runtime.tree import HostTree
from tests.support.isolation import namespace_refusal
from tests.support.jobs.hosts import LOOKS, seen
from tests.support.services.cloud import BUCKET, Cloud, names_in
from tests.support.waiting import DEADLINE


def test_host_with_namespaces_is_isolated(cloud: Cloud) -> None:
    opt = names_in("/opt")
    shm = Path(f"/dev/shm/smdp-test-{os.getpid()}")
    shm.touch()
    try:
        job = cloud.run("looks", LOOKS, hosts=2)
    finally:
        shm.unlink()
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    hosts = seen(cloud, "looks")
    assert sorted(hosts) == ["algo-1", "algo-2"]
    for name, host in hosts.items():
        assert host["host"] == name
        assert host["address"].startswith("127.")
        assert not host["address"].startswith("127.0.")
        assert host["address"].endswith("." + name.removeprefix("algo-"))
        assert "smdp_entrypoint" in host["first process"]
        assert host["processes"] < 10
        assert "of-this-host-smdp-test" in host["tmp"]
        assert set(host["opt"]) == opt | {"ml"}
        assert host["shm"] == []
        assert (host["home"], host["uid"]) == ("/tmp", 0)
    assert hosts["algo-1"]["address"].rpartition(".")[0] == hosts["algo-2"]["address"].rpartition(".")[0]
    assert not Path("/tmp/of-this-host-smdp-test").exists()
    assert names_in("/opt") == opt


def test_host_has_the_files_and_variables_of_the_platform(either_cloud: Cloud) -> None:
    either_cloud.s3.put_object(Bucket=BUCKET, Key="data/x", Body=b"x")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data"}}
    channel = {"ChannelName": "train", "ContentType": "text/csv", "DataSource": source}
    checkpoints = {"S3Uri": f"s3://{BUCKET}/files-ckpt", "LocalPath": "/opt/ml/mine"}
    either_cloud.run(
        "files", LOOKS, hosts=2, InputDataConfig=[channel], CheckpointConfig=checkpoints, Environment={"MINE": "1"}
    )
    host = seen(either_cloud, "files")["algo-2"]
    config = host["config"]
    assert set(config) == {"hyperparameters", "resourceconfig", "inputdataconfig", "checkpointconfig"}
    assert config["hyperparameters"]["sagemaker_program"] == '"train.py"'
    assert config["resourceconfig"] == {
        "current_host": "algo-2",
        "current_instance_type": "ml.p4d.24xlarge",
        "current_group_name": "homogeneousCluster",
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [
            {
                "instance_group_name": "homogeneousCluster",
                "instance_type": "ml.p4d.24xlarge",
                "hosts": ["algo-1", "algo-2"],
            }
        ],
        "network_interface_name": "lo",
    }
    assert config["inputdataconfig"]["train"] == {
        "ContentType": "text/csv",
        "TrainingInputMode": "File",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    }
    assert config["checkpointconfig"] == {"LocalPath": "/opt/ml/mine", "S3Uri": f"s3://{BUCKET}/files-ckpt"}
    environment = host["environ"]
    assert environment["TRAINING_JOB_NAME"] == "files"
    assert environment["TRAINING_JOB_ARN"].endswith("training-job/files")
    assert environment["AWS_ENDPOINT_URL"] == either_cloud.endpoint.url
    assert environment["MINE"] == "1"
    assert environment["MASTER_PORT"] == environment["SMDP_MASTER_PORT"]
    assert ("SMDP_ML_ROOT" in environment) == ("SMDP_HOSTS_FILE" in environment) == (either_cloud.level == "tree")
    mine = environment["SMDP_CHECKPOINT_DIR"]
    assert mine == environment.get("SMDP_ML_ROOT", "/opt/ml") + "/mine"


@pytest.mark.runs
def test_packages_below_tmp_stay_importable(open_cloud: Callable[[], Cloud], monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="smdp-packages-") as folder:
        Path(folder, "below_tmp.py").write_text("NAME = 'found'")
        monkeypatch.setenv("PYTHONPATH", folder)
        cloud = open_cloud()
        job = cloud.run("below", "import below_tmp, os; print(below_tmp.NAME, sorted(os.listdir('/tmp')))")
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        assert Path(folder).name in cloud.await_log("below", "found")


def test_failure_reason_says_why_a_host_did_not_start(either_cloud: Cloud) -> None:
    job = either_cloud.run("nul", "", Environment={"SMDP_WORKERS_PER_HOST": "1", "NAME": "nul\0byte"})
    assert "the simulated host could not be set up: embedded null byte" in job["FailureReason"]


@pytest.fixture
def folder_in_shared_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


EXITS_ON_SIGTERM = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); time.sleep(600)"


@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=pytest.mark.runs)])
def test_sigterm_is_not_lost_while_a_host_starts(tmp_path: Path, isolated: bool) -> None:
    """The first process of a namespace loses a signal that it has no handler for, and it has none until it runs."""
    if isolated and namespace_refusal():
        pytest.skip(f"no namespaces here: {namespace_refusal()}")
    for milliseconds in range(0, 60, 4):
        tree = HostTree("algo-1", tmp_path / str(milliseconds))
        for folder in (tree.ml / "output", tree.tmp, tree.opt):
            folder.mkdir(parents=True)
        tree.hosts_file.touch()
        view = View(tree.name, tree.ml, tree.tmp, tree.opt, tree.hosts_file, (Path(sys.base_prefix),))
        command = [os.path.realpath(sys.executable), "-c", EXITS_ON_SIGTERM]
        spec = HostSpec(os.getpid(), isolated, command, dict(os.environ), view)
        host = Host(tree, spec, HostLog(tmp_path / f"{milliseconds}.jsonl"))
        try:
            while not handles_sigterm(host.pid):
                time.sleep(0.001)
            time.sleep(milliseconds / 1000)
            host.terminate()
            assert wait_until([host], DEADLINE), f"signalled {milliseconds} ms after its monitor had started"
            assert host.code in {3, 128 + signal.SIGTERM}  # from its handler, or before it had one
        finally:
            host.kill()


@pytest.mark.runs
def test_state_folder_in_shared_memory_works(folder_in_shared_memory: Path) -> None:
    script = """
        import os
        print("sees", len(os.listdir("/dev/shm")))
    """
    with private(folder_in_shared_memory / "state") as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        job = cloud.run("shm", script, hosts=2)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")


def test_host_names_are_sorted_as_text() -> None:
    assert host_names(11) == ["algo-1", "algo-10", "algo-11", *(f"algo-{number}" for number in range(2, 10))]


def test_isolation_level_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isolation().level in ("namespaces", "tree")
    monkeypatch.setenv("SMDP_LOCAL_ISOLATION", "tree")
    forced = isolation()
    assert (forced.level, forced.reason) == ("tree", "SMDP_LOCAL_ISOLATION=tree is set")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_without_root_can_have_namespaces() -> None:
    # Only root may be able to read the interpreter, so the script drops its rights after all imports. Its files in
    # /proc belong to root until it declares itself dumpable again.
    without_root = """
        import ctypes, os, sys
        from smdp_launch.localcloud.isolation import namespaces
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
        ctypes.CDLL(None).prctl(4, 1)
        sys.exit(namespaces._try_out())
    """
    trial = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(without_root)], capture_output=True, text=True, check=False
    )
    assert (trial.returncode, trial.stderr) == (0, "")


def test_tmp_itself_is_not_mounted_into_tmp() -> None:
    root = Path("/tmp")
    existing = [Path("/tmp"), Path("/usr"), Path("/nonexistent")]
    assert namespaces._outermost(existing, root) == []


def test_leases_do_not_overlap_and_are_released() -> None:
    first, second = port_lease.take("same name"), port_lease.take("same name")
    assert first.network != second.network
    network = first.network
    first.release()
    third = port_lease.take("same name")
    assert third.network == network
    second.release()
    third.release()
    assert third.address(7) == f"{network}.7"
