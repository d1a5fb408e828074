"""Real SLURM on two hosts: steps, batch scripts, and launchers inside a job."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from launching import launched, slurm_cluster
from launching.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.launchers,
    pytest.mark.skipif(
        bool(slurm_cluster.missing()),
        reason=f"no {', '.join(slurm_cluster.missing())} here: apt-get install slurmctld slurmd slurm-client, as root",
    ),
]

PYTHON = sys.executable
#: rank, world size, local rank, local world size, address
TWO_AND_ONE = ["(0, 3, 0, 2, 'algo-1')", "(1, 3, 1, 2, 'algo-1')", "(2, 3, 0, 1, 'algo-1')"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="smdp-slurm-") as folder:
        for name, script in (("train.py", launched.TRAIN), ("detect.py", launched.DETECT)):
            Path(folder, name).write_text(script)
        with SlurmCluster(2, Path(folder)) as started:
            yield started


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("srun -N 2 -n 3", TWO_AND_ONE),
        ("srun -N 2 -n 3 --mpi=pmi2", TWO_AND_ONE),
        (
            "srun -N 2 -n 3 --distribution=cyclic",
            ["(0, 3, 0, 2, 'algo-1')", "(1, 3, 0, 1, 'algo-1')", "(2, 3, 1, 2, 'algo-1')"],
        ),
        # A step on a part of its job's nodes.
        ("salloc -N 2 -n 4 srun -N 1 -n 1 -w algo-2", ["(0, 1, 0, 1, 'algo-2')"]),
        ("MASTER_ADDR=10.214.0.1 srun -N 2 -n 2", ["(0, 2, 0, 1, '10.214.0.1')", "(1, 2, 0, 1, '10.214.0.1')"]),
    ],
)
def test_tasks_of_a_step_find_their_ranks_and_first_node(
    cluster: SlurmCluster, command: str, lines: "list[str]"
) -> None:
    ran = cluster.run(f"{command} {PYTHON} detect.py")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == lines


def test_rank_0_on_another_node_than_the_first_is_refused(cluster: SlurmCluster) -> None:
    (cluster.folder / "order").write_text("algo-2\nalgo-1\nalgo-1\n")
    ran = cluster.run(f"SLURM_HOSTFILE=order srun -n 3 --distribution=arbitrary {PYTHON} detect.py")
    assert ran.stdout.count("refused: MASTER_ADDR is not set, and rank 0 does not run on the first node") == 3


def test_process_of_a_job_that_srun_did_not_start_is_refused(cluster: SlurmCluster) -> None:
    ran = cluster.run(f"salloc -N 2 -n 3 {PYTHON} detect.py")
    assert "refused: SLURM_STEP_ID is not set: this process runs in SLURM job" in ran.stdout
    batch = cluster.run(f"sbatch --wait -N 2 -n 3 -o batch.txt --wrap '{PYTHON} detect.py'")
    assert batch.returncode == 0, batch.stderr
    assert "refused: SLURM_STEP_ID is not set" in (cluster.folder / "batch.txt").read_text()


@pytest.mark.parametrize(
    "command",
    [
        "mpirun --allow-run-as-root -np 4 -x MASTER_ADDR=algo-1",
        "mpiexec.hydra -n 4 -genv MASTER_ADDR algo-1 -genv MASTER_PORT 29500",
    ],
)
def test_ranks_of_mpi_inside_a_job_are_those_of_mpi(cluster: SlurmCluster, command: str) -> None:
    program = command.partition(" ")[0]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install openmpi-bin mpich")
    ran = cluster.run(f"salloc -N 2 -n 4 {command} {PYTHON} detect.py")
    assert ran.returncode == 0, ran.stderr
    pairs = [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert sorted(ran.stdout.splitlines()) == [f"({rank}, 4, {local}, 2, 'algo-1')" for rank, local in pairs]


def test_mpi_on_several_hosts_without_master_is_refused(cluster: SlurmCluster) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun: apt-get install openmpi-bin")
    ran = cluster.run(f"salloc -N 2 -n 4 mpirun --allow-run-as-root -np 4 {PYTHON} detect.py")
    assert ran.stdout.count("refused: MASTER_ADDR is not set, and Open MPI does not report which") == 4


def test_ranks_of_two_nodes_sum_over_both_hosts(cluster: SlurmCluster) -> None:
    ran = cluster.run(f"srun -N 2 -n 3 --kill-on-bad-exit {PYTHON} train.py", SMDP_JOB_TOKEN="0123456789abcdef" * 2)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [
        "rank 0 of 3, 0 of 2: 6",
        "rank 1 of 3, 1 of 2: 6",
        "rank 2 of 3, 0 of 1: 6",
    ]
    (line,) = [one for one in ran.stderr.splitlines() if "SLURM step" in one]
    assert "3 ranks, MASTER_ADDR=algo-1 (from the first node of SLURM_STEP_NODELIST), MASTER_PORT=2" in line


def test_torchrun_on_each_node_starts_the_ranks(cluster: SlurmCluster) -> None:
    agent = f"{PYTHON} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank $SLURM_NODEID"
    agent += " --master-addr algo-1 --master-port 29500 train.py"
    ran = cluster.run(f"srun -N 2 --ntasks-per-node 1 --kill-on-bad-exit bash -c '{agent}'")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["rank 0 of 2, 0 of 1: 3", "rank 1 of 2, 0 of 1: 3"]
