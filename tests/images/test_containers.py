"""Jobs whose hosts are containers of the built image."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.images.base import buildah
from tests.images.conftest import FRAMEWORKS, Recipe
from tests.support.jobs.mnist import prepare
from tests.support.services.cloud import Cloud, is_running, kill, names_in, processes_with
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.images, pytest.mark.torch, pytest.mark.timeout(1800)]
SUM = """
    import json, os, socket
    import torch, torch.distributed as dist
    import smdistributed.dataparallel.torch.torch_smddp
    dist.init_process_group("smddp")
    tensor = torch.full((1000,), float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    spaces = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net", "mnt", "uts", "ipc")}
    with open(f"/opt/ml/model/{dist.get_rank()}", "w") as file:
        file.write(socket.gethostname())
    print("REPORT", json.dumps({"sum": tensor.tolist()[0], "host": socket.gethostname(), "spaces": spaces,
        "interfaces": sorted(os.listdir("/sys/class/net")), "ml": sorted(os.listdir("/opt/ml/input/config")),
        "model": sorted(os.listdir("/opt/ml/model")), "tmp": os.listdir("/tmp"), "first": os.readlink("/proc/1/exe"),
        "outside": os.path.exists(os.environ["OUTSIDE"]),
        "limits": [line.split()[1] for line in open("/proc/self/status") if line[:6] in ("CapEff", "NoNewP")]}))
    dist.barrier()
    dist.destroy_process_group()
"""
WAITS = """
    import os, signal, sys, time
    def leave(*_):
        open("/opt/ml/output/data/left", "w").write("in order")
        print("LEAVING", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    print("WAITING", os.environ["RANK"], flush=True)
    while True:
        time.sleep(0.1)
"""


def changes(image: str, workers: int = 1, **environment: str) -> dict[str, Any]:
    return {
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "Environment": {"SMDP_WORKERS_PER_HOST": str(workers), "SMDP_LOCAL_HOSTS": "containers", **environment},
    }


@pytest.fixture
def cloud(open_cloud: Callable[[], Cloud]) -> Iterator[Cloud]:
    """A local cloud. Checks that its jobs leave no containers, mounts and processes behind."""
    opened = open_cloud()
    yield opened
    assert_nothing_left(str(opened.state_dir))


def assert_nothing_left(mark: str) -> None:
    wait_for(lambda: not containers(), "the removal of the job's containers", 30)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    assert [line for line in mounts if mark in line or "/containers/storage/overlay/" in line] == []
    wait_for(lambda: not processes_with(f"{mark}/jobs"), "the end of the job's processes", 30)


def containers() -> list[str]:
    names = json.loads(buildah("containers", "--json") or "[]") or []
    return [one["containername"] for one in names if one["containername"].startswith("smdp-")]


def worker(cloud: Cloud, name: str, host: str) -> int:
    """The local process of the first worker of a host."""
    keeper = processes_with(str(cloud.state_dir / "jobs" / name / "hosts" / host / "spec.json"))
    found = [pid for pid in processes_with(f"TRAINING_JOB_NAME={name}") if below(pid, keeper) and is_script(pid)]
    assert len(found) == 1
    return found[0]


def below(pid: int, ancestors: list[int]) -> bool:
    while pid > 1:
        if pid in ancestors:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def is_script(pid: int) -> bool:
    return b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize(("hosts", "workers"), [(2, 2), (3, 1)])
def test_container_hosts_exchange_over_own_network(
    cloud: Cloud, image: str, hosts: int, workers: int, tmp_path: Path
) -> None:
    (tmp_path / "outside").touch()
    described = cloud.run("sum", SUM, hosts=hosts, **changes(image, workers, OUTSIDE=str(tmp_path / "outside")))
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    lines = [line for line in cloud.log("sum") if "REPORT" in line]
    reports = [json.loads(line.partition("REPORT ")[2]) for line in lines]
    world = hosts * workers
    assert len(reports) == world
    assert {one["sum"] for one in reports} == {world * (world + 1) / 2}
    assert {one["host"] for one in reports} == {f"algo-{number}" for number in range(1, hosts + 1)}
    for kind in ("pid", "net", "mnt", "uts", "ipc"):
        inside = {one["spaces"][kind] for one in reports}
        assert len(inside) == hosts
        assert str(Path(f"/proc/self/ns/{kind}").readlink()) not in inside
    for one in reports:
        assert one["interfaces"] == ["eth0", "lo"]
        assert one["ml"] == ["hyperparameters.json", "inputdataconfig.json", "resourceconfig.json"]
        assert len(one["model"]) <= workers
        assert one["tmp"] == []
        assert one["first"].startswith("/usr/bin/python3")
        assert not one["outside"]
        # No permission to mount, load modules or set the clock, and no way to get more permissions.
        assert one["limits"] == ["00000000a00425fb", "1"]
    assert cloud.keys("out/sum/output/model.tar.gz")


def test_files_written_in_container_stay_in_it(cloud: Cloud, image: str) -> None:
    script = "import os; open('/usr/bin/mark', 'w').close(); print('MARK', os.listdir('/usr/bin').count('mark'))"
    assert cloud.run("write", script, hosts=1, **changes(image))["TrainingJobStatus"] == "Completed"
    again = "import os; print('MARK', os.listdir('/usr/bin').count('mark'))"
    assert cloud.run("again", again, hosts=1, **changes(image))["TrainingJobStatus"] == "Completed"
    assert [line[-1] for name in ("write", "again") for line in cloud.log(name) if "MARK" in line] == ["1", "0"]
    assert not Path("/usr/bin/mark").exists()


def test_containers_share_file_system(cloud: Cloud, image: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    script = """
        import os, pathlib
        (pathlib.Path(os.environ["SM_CHANNEL_OUT"]) / os.environ["SM_CURRENT_HOST"]).write_text("here")
        try:
            open(os.path.join(os.environ["SM_CHANNEL_DATA"], "mine"), "w")
        except OSError as error:
            print("REFUSED", error.strerror)
    """
    source = {"FileSystemId": THIS_MACHINE, "FileSystemType": "EFS", "DirectoryPath": str(tmp_path / "shared")}
    inputs = [
        {"ChannelName": name, "DataSource": {"FileSystemDataSource": source | {"FileSystemAccessMode": access}}}
        for name, access in (("data", "ro"), ("out", "rw"))
    ]
    job = cloud.run("shares", script, hosts=2, InputDataConfig=inputs, **changes(image))
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert len([line for line in cloud.log("shares") if "REFUSED Read-only file system" in line]) == 2
    assert names_in(str(tmp_path / "shared")) == {"algo-1", "algo-2"}


def test_stopped_job_leaves_no_resources_behind(cloud: Cloud, image: str) -> None:
    cloud.start("stop", WAITS, hosts=2, **changes(image))
    for rank in (0, 1):
        cloud.await_log("stop", f"WAITING {rank}")
    cloud.sagemaker.stop_training_job(TrainingJobName="stop")
    assert cloud.wait("stop")["TrainingJobStatus"] == "Stopped"
    assert len([line for line in cloud.log("stop") if "LEAVING" in line]) == 2
    assert cloud.keys("out/stop/output/output.tar.gz")


def test_killed_worker_ends_job_with_its_name(cloud: Cloud, image: str) -> None:
    cloud.start("killed", WAITS, hosts=2, **changes(image))
    for rank in (0, 1):
        cloud.await_log("killed", f"WAITING {rank}")
    os.kill(worker(cloud, "killed", "algo-2"), signal.SIGKILL)
    described = cloud.wait("killed")
    assert described["TrainingJobStatus"] == "Failed"
    assert "algo-2" in described["FailureReason"]
    assert "SIGKILL" in described["FailureReason"] or "137" in described["FailureReason"]


def test_killed_container_ends_job(cloud: Cloud, image: str) -> None:
    cloud.start("gone", WAITS, hosts=3, **changes(image))
    for rank in (0, 1, 2):
        cloud.await_log("gone", f"WAITING {rank}")
    first = worker(cloud, "gone", "algo-3")
    entrypoint = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(entrypoint, signal.SIGKILL)
    assert cloud.wait("gone")["TrainingJobStatus"] == "Failed"
    assert not is_running(first)


def test_killed_supervisor_leaves_no_resources_behind(cloud: Cloud, image: str) -> None:
    cloud.start("orphans", WAITS, hosts=2, **changes(image))
    for rank in (0, 1):
        cloud.await_log("orphans", f"WAITING {rank}")
    assert containers() == ["smdp-orphans"]
    kill(cloud.supervisor("orphans"))
    assert cloud.wait("orphans")["TrainingJobStatus"] == "Failed"


def test_missing_local_image_is_reported(cloud: Cloud) -> None:
    described = cloud.run("none", WAITS, hosts=1, **changes("smdp-test-none:1"))
    assert described["TrainingJobStatus"] == "Failed"
    assert "buildah has no image smdp-test-none:1" in described["FailureReason"]


def test_image_without_train_is_reported(cloud: Cloud, tiny: Callable[..., str]) -> None:
    described = cloud.run("empty", WAITS, hosts=1, **changes(tiny("smdp-test-empty:1")))
    assert described["TrainingJobStatus"] == "Failed"
    assert "train" in described["FailureReason"]


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("mnist"))


def job(folder: Path, image: str, template: str = "mnist") -> Path:
    text = (ROOT / "templates" / "jobs" / f"{template}.yaml").read_text()
    path = folder / "job.yaml"
    text = re.sub(r"source: \.\./", f"source: {ROOT}/templates/", text)
    path.write_text(re.sub(r"^image: .*$", f"image: {image}", text, flags=re.MULTILINE))
    return path


def train(path: Path, digits: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Train in containers with one worker each, and check the accuracy and that nothing is left behind."""
    data = [f"--data={name}={digits / name}" for name in ("train", "test")]
    ran = subprocess.run(
        [LAUNCHER, "launch", path, "--local", "--containers", "--workers-per-host=1", *flags, *data],
        cwd=path.parent, env=clean_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
    found = re.search(r"^result +accuracy (0\.\d+), digits 1000$", ran.stdout, re.MULTILINE)
    assert found is not None
    assert float(found[1]) >= 0.9
    assert_nothing_left(str(path.parent))
    return ran


@pytest.mark.parametrize("hosts", [2, 3])
def test_template_trains_in_containers(hosts: int, image: str, digits: Path, tmp_path: Path) -> None:
    batch = f"script.hyperparameters.batch-size={126 if hosts == 3 else 128}"  # each worker gets the same amount
    ran = train(job(tmp_path, image), digits, f"--hosts={hosts}", "--set", batch)
    assert f"{hosts} host(s), 1 worker(s) on each" in ran.stdout


@pytest.mark.parametrize("template", ["mnist_tf2", "mnist_keras"])
@pytest.mark.parametrize(
    "any_recipe",
    [("tensorflow", *one) for one in FRAMEWORKS["tensorflow"]],
    indirect=True,
    ids=lambda one: one[1],
    scope="session",
)
def test_tensorflow_templates_train_in_containers(
    template: str, any_recipe: Recipe, any_image: str, digits: Path, tmp_path: Path
) -> None:
    version = f"framework.version={any_recipe.version}"
    ran = train(job(tmp_path, any_image, template), digits, "--hosts=2", "--set", version)
    assert "2 host(s), 1 worker(s) on each" in ran.stdout


def test_ctrl_c_stops_containers(image: str, digits: Path, tmp_path: Path) -> None:
    data = [f"--data={name}={digits / name}" for name in ("train", "test")]
    command = [LAUNCHER, "launch", job(tmp_path, image), "--local", "--containers", "--hosts=2", "--workers-per-host=1"]
    log = tmp_path / "out.txt"
    with log.open("w") as out:
        running = subprocess.Popen(
            [*command, "--set", "script.hyperparameters.epochs=10000", *data],
            cwd=tmp_path, env=clean_environment(), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        wait_for(lambda: re.search(r"^step \d+/\d+ ", log.read_text(), re.MULTILINE), "the first step")
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 11, log.read_text()
    finally:
        if running.poll() is None:  # otherwise the job would continue in its containers
            running.send_signal(signal.SIGINT)
            running.wait(60)
    assert_nothing_left(str(tmp_path))


def test_launcher_refuses_job_that_cannot_run_before_start(tmp_path: Path, digits: Path) -> None:
    data = [f"--data={name}={digits / name}" for name in ("train", "test")]
    ran = subprocess.run(
        [LAUNCHER, "launch", job(tmp_path, "smdp-test-none:1"), "--local", "--containers", *data],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ran.returncode == 4
    assert "buildah has no image smdp-test-none:1" in ran.stderr
    assert not (tmp_path / ".smdp" / "local" / "jobs").exists()
