"""A process that ``mpirun`` or ``mpiexec`` started: Open MPI, or Hydra, the launcher of MPICH and Intel MPI."""

from typing import NamedTuple, Optional, Tuple

from . import master
from .launch import Launch, LaunchError
from .variables import Variables, check_bounds


class _Kind(NamedTuple):
    launcher: str
    name: str
    #: The variables of the rank, the number of ranks, and both on this host.
    names: Tuple[str, str, str, str]
    #: The variables with the job's ID.
    job: Tuple[str, ...]
    start: str
    #: How a variable is given to all ranks.
    export: str


_OPEN_MPI = _Kind(
    "openmpi",
    "Open MPI",
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "start the script with mpirun, as in: mpirun -np 4 python train.py",
    "mpirun -x {}={} ...",
)
_HYDRA = _Kind(
    "mpich",
    "MPICH or Intel MPI",
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    (),
    "start the script with mpiexec of MPICH or Intel MPI, or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
    "MASTER_PORT and pass launcher='env'",
    "mpiexec -genv {} {} ...",
)


def open_mpi(variables: Variables) -> Launch:
    return _launch(variables, _OPEN_MPI)


def hydra(variables: Variables) -> Launch:
    return _launch(variables, _HYDRA)


def _launch(variables: Variables, kind: _Kind) -> Launch:
    rank, world_size, local_rank, local_size = (variables.number(name, fix=kind.start) for name in kind.names)
    check_bounds(rank, world_size, local_rank, local_size, kind.names)
    variables.check(RANK=rank, WORLD_SIZE=world_size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=local_size)
    is_one_host = local_size == world_size
    address, origin = _address(variables, kind, is_one_host)
    job = variables.text(*kind.job) if kind.job else None
    port, port_origin = master.port(variables, job, kind.export.format("MASTER_PORT", 29500))
    name = kind.name + (f" job {job}" if job else "")
    return Launch(kind.launcher, name, rank, world_size, local_rank, local_size, address, port, origin, port_origin)


def _address(variables: Variables, kind: _Kind, is_one_host: bool) -> Tuple[str, str]:
    address: Optional[str] = variables.text("MASTER_ADDR")
    if address is not None:
        master.check_address(address, is_one_host=is_one_host)
        return address, "from the environment"
    if not is_one_host:
        raise LaunchError(
            f"MASTER_ADDR is not set, and {kind.name} does not report which of the job's hosts rank 0 runs on "
            f"({kind.names[3]} is below {kind.names[1]}): set it to the name or address of that host, as in "
            f"{kind.export.format('MASTER_ADDR', 'node1')}"
        )
    return "127.0.0.1", "since all ranks run on this host"
