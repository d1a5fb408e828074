"""The variables that each launcher sets, and what is refused. The values are those of real launchers."""

import re
from typing import Dict

import pytest

from smdp_engine.launchers import LAUNCHERS, Launch, LaunchError, detect

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job-7",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "RANK": "2",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "34917",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_MCA_ess_base_jobid": "1746599937",
    "PMIX_NAMESPACE": "1746599937",
    "PMIX_RANK": "1",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "6", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_GTIDS": "2",
    "SLURM_JOB_NODELIST": "node[01-03]",
    "SLURM_STEP_NODELIST": "node[02-03]",
    "SLURM_TASKS_PER_NODE": "2,1",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}
MASTER = {"MASTER_ADDR": "node9", "MASTER_PORT": "29500"}
ENV = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", **MASTER}
SET = "from the environment"
#: What the batch script of a SLURM job has, and what mpirun or torchrun inherit from it.
BATCH = {name: value for name, value in SLURM.items() if "STEP" not in name} | {"SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, Launch("torchrun", "torchrun job-7", 2, 3, 0, 1, "node1", 34917)),
        (
            OPEN_MPI,
            Launch(
                "openmpi",
                "Open MPI job 1746599937",
                *(1, 4, 1, 4, "127.0.0.1", 28054),
                "since all ranks run on this host",
                "from the job's ID",
            ),
        ),
        (HYDRA | MASTER, Launch("mpich", "MPICH or Intel MPI", 3, 4, 1, 2, "node9", 29500)),
        (
            SLURM,
            Launch(
                "slurm",
                "SLURM step 17.2",
                *(2, 3, 0, 1, "node02", 24729),
                "from the first node of SLURM_STEP_NODELIST",
                "from the job's ID",
            ),
        ),
        (SLURM | MASTER, Launch("slurm", "SLURM step 17.2", 2, 3, 0, 1, "node9", 29500)),
        (ENV, Launch("env", "RANK and WORLD_SIZE", 0, 2, 0, None, "node9", 29500)),
        # One inside the other.
        (SLURM | TORCHRUN, Launch("torchrun", "torchrun job-7", 2, 3, 0, 1, "node1", 34917)),
        (OPEN_MPI | TORCHRUN, Launch("torchrun", "torchrun job-7", 2, 3, 0, 1, "node1", 34917)),
        (SLURM | HYDRA | MASTER, Launch("mpich", "MPICH or Intel MPI", 3, 4, 1, 2, "node9", 29500)),
        (SLURM | OPEN_MPI | MASTER, Launch("openmpi", "Open MPI job 1746599937", 1, 4, 1, 4, "node9", 29500)),
        (BATCH | ENV, Launch("env", "RANK and WORLD_SIZE", 0, 2, 0, None, "node9", 29500)),
        # srun --mpi=pmi2
        (
            SLURM | MASTER | {"PMI_RANK": "2", "PMI_SIZE": "3"},
            Launch("slurm", "SLURM step 17.2", 2, 3, 0, 1, "node9", 29500),
        ),
        # An empty variable is one that is not set.
        (SLURM | MASTER | {"RANK": ""}, Launch("slurm", "SLURM step 17.2", 2, 3, 0, 1, "node9", 29500)),
    ],
)
def test_launch_has_ranks_and_master_of_innermost_launcher(environ: Dict[str, str], expected: Launch) -> None:
    assert detect(environ) == expected
    # What init() sets for other libraries must not change what a second init() sees.
    assert detect(environ | expected.variables())[1:8] == expected[1:8]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "no launcher started this process (RANK is not set): start the script with torchrun"),
        (BATCH, "SLURM_STEP_ID is not set: this process runs in SLURM job 17, but srun did not start it"),
        ({"SLURM_JOB_ID": "17", "SLURM_NTASKS": "4"}, "SLURM_STEP_ID is not set: this process runs in SLURM job 17"),
        (
            ENV | {"WORLD_SIZE": ""},
            "WORLD_SIZE is not set: set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT",
        ),
        (ENV | {"LOCAL_RANK": ""}, "LOCAL_RANK is not set: set RANK"),
        (ENV | {"MASTER_ADDR": ""}, "MASTER_ADDR is not set: set RANK"),
        (ENV | {"MASTER_PORT": ""}, "MASTER_PORT is not set: set RANK"),
        (ENV | {"RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2: ranks count from 0"),
        (ENV | {"RANK": "-1"}, "RANK='-1' is not a number of 0 or more: correct it or unset it"),
        (ENV | {"RANK": "²"}, "RANK='²' is not a number"),
        (ENV | {"RANK": "9" * 5000}, "is not a number"),
        (ENV | {"WORLD_SIZE": "0"}, "RANK=0 is not below WORLD_SIZE=0"),
        (ENV | {"LOCAL_RANK": "3"}, "LOCAL_RANK=3 is not below WORLD_SIZE=2: local ranks count from 0 on each host"),
        (ENV | {"LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE=2"),
        (ENV | {"MASTER_PORT": "65536"}, "MASTER_PORT='65536' is not a port: set it to a number from 1 to 65535"),
        (ENV | {"MASTER_PORT": "http"}, "MASTER_PORT='http' is not a port"),
        (TORCHRUN | {"RANK": ""}, "RANK is not set: start the script with torchrun"),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            "MASTER_ADDR is not set, and Open MPI does not report which of the job's hosts rank 0 runs on "
            "(OMPI_COMM_WORLD_LOCAL_SIZE is below OMPI_COMM_WORLD_SIZE): set it to the name or address of that host, "
            "as in mpirun -x MASTER_ADDR=node1 ...",
        ),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "localhost"},
            "MASTER_ADDR=localhost is this host on every host, and the job has several: set MASTER_ADDR to",
        ),
        (
            OPEN_MPI | {"RANK": "0"},
            "RANK=0 contradicts the launcher, for which it is 1: unset RANK, or pass launcher='env'",
        ),
        (OPEN_MPI | {"WORLD_SIZE": "8"}, "WORLD_SIZE=8 contradicts the launcher, for which it is 4: unset WORLD_SIZE"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": ""}, "OMPI_COMM_WORLD_SIZE is not set: start the script with mpirun"),
        (OPEN_MPI | HYDRA, "OMPI_COMM_WORLD_RANK and PMI_RANK are both set"),
        (HYDRA, "MASTER_ADDR is not set, and MPICH or Intel MPI does not report which"),
        (
            HYDRA | {"MASTER_ADDR": "node1"},
            "MASTER_PORT is not set, and this launcher has no ID of the job to derive one from: set it to a free port "
            "of rank 0's host, as in mpiexec -genv MASTER_PORT 29500 ...",
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MPI_LOCALRANKID is not set: start the script with mpiexec of MPICH"),
        (SLURM | {"RANK": "1"}, "RANK=1 contradicts the launcher, for which it is 2"),
        (SLURM | {"LOCAL_RANK": "1"}, "LOCAL_RANK=1 contradicts the launcher, for which it is 0"),
        (SLURM | {"SLURM_STEP_NODELIST": "node[02-"}, "SLURM_STEP_NODELIST='node[02-' is not a list of nodes ("),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2,x"}, "SLURM_STEP_TASKS_PER_NODE='2,x' is not a list of tasks"),
        (
            SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
            "SLURM_STEP_TASKS_PER_NODE='2(x2)' has 4 tasks on 2 nodes, but",
        ),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, "has 3 tasks on 3 nodes, but SLURM_STEP_NUM_TASKS is 3"),
        (SLURM | {"SLURM_PROCID": "3"}, "SLURM_PROCID=3 is not below SLURM_STEP_NUM_TASKS=3"),
        (SLURM | {"SLURM_LOCALID": "1"}, "SLURM_LOCALID=1 is not below SLURM_STEP_TASKS_PER_NODE=1: local ranks"),
        (SLURM | {"SLURM_NODEID": "2"}, "SLURM_NODEID=2 is not below the 2 nodes of SLURM_STEP_NODELIST"),
        (SLURM | {"SLURM_NODEID": ""}, "SLURM_NODEID is not set: start the script with srun"),
        (SLURM | {"MASTER_ADDR": "127.0.0.1"}, "MASTER_ADDR=127.0.0.1 is this host on every host"),
        # srun --distribution=arbitrary: rank 0 is on the second node.
        (
            SLURM | {"SLURM_PROCID": "0", "SLURM_GTIDS": "0"},
            "MASTER_ADDR is not set, and rank 0 does not run on the first node of the step (SLURM_NODEID=1 has the "
            "ranks SLURM_GTIDS='0'): set MASTER_ADDR to the name of rank 0's node",
        ),
    ],
)
def test_wrong_variables_give_one_sentence_with_variable_value_and_fix(environ: Dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(message)) as raised:
        detect(environ)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 400
    assert re.search(r": \S", text)  # the fix


def test_named_launcher_is_used_whatever_else_is_set() -> None:
    both = OPEN_MPI | ENV
    with pytest.raises(LaunchError, match="RANK=0 contradicts"):
        detect(both)
    assert detect(both, "env") == detect(ENV)
    assert detect(SLURM | OPEN_MPI, "slurm") == detect(SLURM)
    with pytest.raises(ValueError, match="launcher='mpi': use one of torchrun, openmpi, mpich, slurm, env"):
        detect(both, "mpi")


def test_loopback_is_allowed_as_master_of_one_host() -> None:
    assert detect(OPEN_MPI | {"MASTER_ADDR": "localhost"}).master_addr == "localhost"
    one_node = {
        "SLURM_STEP_NODELIST": "node07",
        "SLURM_STEP_TASKS_PER_NODE": "3",
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": "0,1,2",
        "MASTER_ADDR": "127.0.0.1",
    }
    assert detect(SLURM | one_node).master_addr == "127.0.0.1"


def test_ranks_of_a_job_derive_one_port_and_other_jobs_another() -> None:
    first = SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0,1"}
    assert detect(first).master_port == detect(SLURM).master_port
    ports = {detect(SLURM | {"SLURM_STEP_ID": str(step)}).master_port for step in range(100)}
    assert len(ports) > 90
    assert all(20_000 <= port < 30_000 for port in ports)


def test_every_launcher_is_detected() -> None:
    found = {detect(one).launcher for one in (TORCHRUN, OPEN_MPI, HYDRA | MASTER, SLURM, ENV)}
    assert found == set(LAUNCHERS)
