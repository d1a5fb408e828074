"""The server is killed during a job: the next server finds the job, or reports its failure."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError

from smdp_launch.localcloud.client import shared
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.services.cloud import BUCKET, Cloud, kill

STEPS = """\
import os, time
for step in range(15):
    print("step", step, flush=True)
    time.sleep(0.1)
with open(os.environ["SM_MODEL_DIR"] + "/steps", "w") as file:
    file.write("15")
"""


def kill_the_server_in_mid_job(state_dir: Path, name: str, moment: Callable[[Cloud], object]) -> str:
    """Start a job, kill its server when `moment` returns, and start a new server; the job's end status."""
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    cloud.start(name, STEPS, hosts=2)
    moment(cloud)
    kill(cloud.endpoint.pid)
    cloud = Cloud(shared.up(state_dir))
    job = cloud.wait(name)
    if job["TrainingJobStatus"] == "Completed":
        steps = [line for line in cloud.log(name) if " step " in line]
        assert len(steps) == len(set(steps)) == 30
        assert cloud.object(f"out/{name}/output/model.tar.gz")
    else:
        assert job["FailureReason"]
    return str(job["TrainingJobStatus"])


def kill_often(state_dir: Path, rounds: int) -> Counter[str]:
    seed = int(os.environ.get("SMDP_SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    table: Counter[str] = Counter()
    for number in range(rounds):
        delay = chance.uniform(0, 3)
        table[kill_the_server_in_mid_job(state_dir, f"job-{number}", lambda _, delay=delay: time.sleep(delay))] += 1
    shared.down(state_dir)
    assert_nothing_runs(str(state_dir))
    assert list(state_dir.glob("jobs/*/hosts")) == []
    return table


@pytest.mark.runs
def test_job_completes_after_two_kills_of_its_server(state_dir: Path) -> None:
    for number, step in enumerate((1, 8)):
        name = f"job-{number}"
        in_training = lambda cloud, name=name, step=step: cloud.await_log(name, f"step {step}")  # noqa: E731
        assert kill_the_server_in_mid_job(state_dir, name, in_training) == "Completed"
    shared.down(state_dir)
    assert_nothing_runs(str(state_dir))
    assert list(state_dir.glob("jobs/*/hosts")) == []


@pytest.mark.soak
def test_jobs_end_after_twenty_kills_of_their_server(state_dir: Path) -> None:
    table = kill_often(state_dir, 20)
    print(dict(table))
    assert table.total() == 20
    assert set(table) <= {"Completed", "Failed"}


@pytest.mark.soak
def test_server_killed_during_creation_has_the_whole_job_or_none(state_dir: Path) -> None:
    """A retry creates the job or reports that the name is taken; there is never a second or an incomplete job."""
    chance = random.Random(7)
    for number in range(10):
        cloud, name = Cloud(shared.up(state_dir)), f"taken-{number}"
        cloud.s3.create_bucket(Bucket=BUCKET)
        request = cloud.request(name, "print('ran')")
        killer = threading.Timer(chance.uniform(0, 0.03), kill, [cloud.endpoint.pid])
        killer.start()
        with suppress(BotoCoreError):
            cloud.sagemaker.create_training_job(**request)
        killer.join()
        cloud = Cloud(shared.up(state_dir))
        with suppress(cloud.sagemaker.exceptions.ResourceInUse):
            cloud.sagemaker.create_training_job(**request)
        cloud.wait(name)
        assert cloud.log(name).count("[algo-1:0] ran") == 1
    shared.down(state_dir)


#: A sitecustomize for the server: it kills itself before or after it gives the first job's folder its name.
KILLED_AT_THE_NAME = """
import os, pathlib, signal
def rename(path, target, real=pathlib.Path.rename):
    is_job = pathlib.Path(target).parent.name == "jobs" and path.name.startswith(".new-")
    if not is_job or os.path.exists({mark!r}):
        return real(path, target)
    open({mark!r}, "w").close()
    if {is_named}:
        real(path, target)
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.rename = rename
"""


@pytest.mark.parametrize("is_named", [False, True], ids=["before the name", "after the name"])
def test_job_has_a_supervisor_from_the_moment_it_has_a_name(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    (site := tmp_path / "site").mkdir()
    code = KILLED_AT_THE_NAME.format(mark=str(tmp_path / "killed"), is_named=is_named)
    (site / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    request = cloud.request("named", "print('ran')")
    with pytest.raises(BotoCoreError):
        cloud.sagemaker.create_training_job(**request)
    if not is_named:
        assert_nothing_runs(str(state_dir / "jobs"))  # a supervisor without a job exits by itself
    cloud = Cloud(shared.up(state_dir))
    assert cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"] == [] or is_named
    if not is_named:
        cloud.sagemaker.create_training_job(**request)
    assert cloud.wait("named")["TrainingJobStatus"] == "Completed"
    assert cloud.log("named").count("[algo-1:0] ran") == 1
    assert list(state_dir.glob("jobs/.new-*")) == []
    shared.down(state_dir)
    assert_nothing_runs(str(state_dir))
