"""Local runs where the system refuses namespaces: they work with what there is, and say what is weaker."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, ROOT, clean_environment, write_job
from tests.support.jobs.rehearsed import COUNTS
from tests.support.without_namespaces import WAYS

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can set up such a place"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has the system calls of x86_64"),
]
KEEPS = JOB.replace("output: {s3", 'checkpoint: {s3: "s3://bucket/checkpoints"}\noutput: {s3')
REMEDIES = {
    "filter": "start the container with the right to make namespaces (`docker run --cap-add SYS_ADMIN ",
    "rights": "start the container with the right to make namespaces (`docker run --cap-add SYS_ADMIN ",
    "limit": "permit user namespaces (`sudo sysctl -w user.max_user_namespaces=15000`)",
}
SMALL = ["--hosts", "2", "--workers-per-host", "2"]
TRAINS = """\
import os
for place in ("SM_MODEL_DIR", "SMDP_CHECKPOINT_DIR"):
    with open(os.path.join(os.environ[place], os.environ["RANK"]), "w") as file:
        file.write("weights")
print("trained in", os.environ["SM_CURRENT_HOST"], flush=True)
"""
SUMS = """\
import torch, torch.distributed as distributed
import smdistributed.dataparallel.torch.torch_smddp
distributed.init_process_group("smddp")
tensor = torch.full((1000,), float(distributed.get_rank() + 1))
distributed.all_reduce(tensor)
print("sum", tensor.sum().item(), flush=True)
distributed.destroy_process_group()
"""
#: One in `make test`; the others in its tier.
each_way = pytest.mark.parametrize(
    "way", [one if one == "limit" else pytest.param(one, marks=pytest.mark.runs) for one in WAYS]
)


def run(way: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.without_namespaces", way, sys.executable, "-m", "smdp_launch"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "containers" / "entrypoint")])
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=clean_environment(HOME=str(folder), PYTHONPATH=paths, COLUMNS="400", **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@each_way
def test_a_job_trains_and_says_once_what_is_weaker(tmp_path: Path, way: str) -> None:
    write_job(tmp_path, KEEPS, TRAINS)
    ran = run(way, tmp_path, "launch", "--local", *SMALL)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert ran.stdout.count("trained in algo-1") == ran.stdout.count("trained in algo-2") == 2
    lines = ran.stdout.splitlines()
    (weaker,) = (one for one in lines if "separate hosts: they share /opt/ml, /tmp, /dev/shm" in one)
    assert "isolation needs Linux namespaces, which are refused (unshare: " in weaker
    assert REMEDIES[way] in weaker
    (logged,) = (one for one in lines if "No Linux namespaces (unshare: " in one)
    assert logged.startswith("algo-1   | ")
    stored = tmp_path / ".smdp" / "local" / "s3" / "bucket"
    assert len([one for one in stored.rglob("*") if "checkpoints" in one.parts and one.is_file()]) == 4


@each_way
def test_a_job_with_a_network_of_its_own_is_refused_before_anything_changes(tmp_path: Path, way: str) -> None:
    write_job(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ran = run(way, tmp_path, "launch", "--local", *SMALL, "--network", "own")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stdout == ""
    assert ran.stderr.startswith("smdp-launch: a network of the job's own needs Linux namespaces, which are refused (")
    assert f": {REMEDIES[way]}" in ran.stderr
    assert ran.stderr.endswith("; or omit --network to let the hosts share this machine's loopback interface\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_in_the_message_permits_namespaces(tmp_path: Path) -> None:
    write_job(tmp_path)
    assert "namespaces" in run("limit", tmp_path, "launch", "--local", *SMALL, "--dry-run").stdout
    ran = run("limit-lifted", tmp_path, "launch", "--local", *SMALL, "--dry-run")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "not simulated" in ran.stdout
    assert "namespaces" not in ran.stdout


def test_the_variable_in_the_message_permits_namespaces(tmp_path: Path) -> None:
    write_job(tmp_path)
    dry = ["launch", "--local", *SMALL, "--dry-run"]
    assert (
        ": remove the variable (`unset SMDP_LOCAL_ISOLATION`)"
        in run("limit", tmp_path, *dry, SMDP_LOCAL_ISOLATION="tree").stdout
    )


@pytest.mark.torch
@pytest.mark.runs
@pytest.mark.parametrize("way", WAYS)
def test_the_engine_sums_between_hosts(tmp_path: Path, way: str) -> None:
    write_job(tmp_path, script=SUMS)
    ran = run(way, tmp_path, "launch", "--local", *SMALL)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert ran.stdout.count("sum 10000.0") == 4


@pytest.mark.runs
@pytest.mark.parametrize(
    "fault",
    [
        ["spot", "--at", "@5", "--for", "1"],
        ["resume", "--at", "@5"],
        ["kill"],
        ["late", "--for", "1"],
        ["throttle", "--for", "1"],
        ["expire", "--for", "1"],
    ],
    ids=lambda fault: fault[0],
)
def test_faults_are_injected(tmp_path: Path, fault: list[str]) -> None:
    write_job(tmp_path, KEEPS, COUNTS)
    ran = run("rights", tmp_path, "rehearse", *fault, "--hosts", "2", "--workers-per-host", "1")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
