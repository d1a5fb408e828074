"""Ranks that mpirun and mpiexec start, and the store that they share."""

import shutil
import socket
import sys
from pathlib import Path
from typing import Dict, List

import pytest
from launching import launched
from ports import free_port

pytestmark = pytest.mark.torch

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TWICE = launched.TRAIN + launched.TRAIN


def _needs(program: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}: apt-get install {package}")


@pytest.mark.launchers
@_needs("mpirun.openmpi", "openmpi-bin")
def test_ranks_of_open_mpi_on_one_host_need_no_variable(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWICE)
    command = ["mpirun.openmpi", "--oversubscribe", "-np", "3", sys.executable, "train.py"]
    ran = launched.run(command, tmp_path, **AS_ROOT)
    assert ran.returncode == 0, ran.stderr
    # The second init() uses the same port as the first.
    assert sorted(ran.stdout.splitlines()) == sorted([f"rank {rank} of 3, {rank} of 3: 6" for rank in range(3)] * 2)
    assert ran.stderr.count("MASTER_ADDR=127.0.0.1 (since all ranks run on this host), MASTER_PORT=2") == 1


@pytest.mark.launchers
@_needs("mpiexec.hydra", "mpich")
def test_ranks_of_mpich_on_one_host_need_a_port(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(launched.TRAIN)
    command = ["mpiexec.hydra", "-n", "2", "-genv", "MASTER_PORT", str(free_port()), sys.executable, "train.py"]
    ran = launched.run(command, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["rank 0 of 2, 0 of 2: 3", "rank 1 of 2, 1 of 2: 3"]


def _variables(job: str, rank: int, port: int) -> Dict[str, str]:
    """As Open MPI sets them, for a job of two ranks."""
    numbers = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
    ours = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in numbers.items()}
    return {**ours, "PMIX_NAMESPACE": job, "MASTER_PORT": str(port)}


@pytest.mark.runs
def test_rank_that_finds_the_store_of_another_job_is_refused_and_that_job_continues(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(launched.TRAIN)
    command = [sys.executable, "train.py"]
    port = free_port()
    first = launched.start(command, tmp_path, **_variables("job-1", 0, port))
    try:
        other = launched.run(command, tmp_path, **_variables("job-2", 1, port))
        assert other.returncode == 1
        message = f"the store at 127.0.0.1:{port} (MASTER_ADDR since all ranks run on this host, MASTER_PORT from the "
        message += (
            "environment) belongs to another job ('Open MPI job job-1, 2 ranks', this is 'Open MPI job job-2, 2 ranks')"
        )
        assert f"{message}: set MASTER_PORT to another port" in other.stderr
        second = launched.run(command, tmp_path, **_variables("job-1", 1, port))
    finally:
        ended = launched.finish(first)
    assert [second.stdout, ended.stdout] == ["rank 1 of 2, 1 of 2: 3\n", "rank 0 of 2, 0 of 2: 3\n"]


REFUSALS: List = [
    (
        {},
        "MASTER_PORT={port} (from the environment) is in use on this host, where rank 0 runs: set MASTER_PORT to",
    ),
    (
        {"MASTER_ADDR": "no-such-host.invalid"},
        "MASTER_ADDR=no-such-host.invalid (from the environment) has no address on",
    ),
    ({"MASTER_ADDR": "x" * 100}, "(from the environment) has no address on this host"),
    ({"SMDP_RENDEZVOUS_TIMEOUT_S": "soon"}, "SMDP_RENDEZVOUS_TIMEOUT_S='soon' is not a number of seconds"),
    ({"RANK": "1"}, "RANK=1 contradicts the launcher, for which it is 0: unset RANK"),
]


@pytest.mark.runs
def test_store_that_cannot_be_had_is_refused_with_variable_and_fix(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(launched.TRAIN)
    with socket.create_server(("", free_port())) as taken:
        port = taken.getsockname()[1]
        for more, message in REFUSALS:
            ran = launched.run([sys.executable, "train.py"], tmp_path, **{**_variables("job-1", 0, port), **more})
            assert ran.returncode == 1
            last = ran.stderr.strip().splitlines()[-1]
            assert message.format(port=port) in last, ran.stderr
    gone = {**_variables("job-1", 1, free_port()), "SMDP_RENDEZVOUS_TIMEOUT_S": "1"}
    ran = launched.run([sys.executable, "train.py"], tmp_path, **gone)
    last = ran.stderr.strip().splitlines()[-1]
    assert "LaunchError: rank 1 did not reach rank 0's store at 127.0.0.1:" in last, ran.stderr
    assert "in 1 s: check that rank 0 runs on that host" in last
