"""Finds the launcher of this process.

Launchers run inside each other: mpirun or torchrun in a job of SLURM, torchrun below mpirun. The innermost one started
this process, so its variables count. RANK and the like do not show which launcher set them, so where another launcher
is there they must agree with it.
"""

import os
from typing import Callable, Dict, List, Mapping, Optional

from . import mpi, slurm
from .launch import Launch, LaunchError
from .variables import Variables, check_bounds

_ENV = "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"
_TORCHRUN = "start the script with torchrun, as in: torchrun --nproc-per-node 4 train.py"
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def detect(environ: Optional[Mapping[str, str]] = None, launcher: Optional[str] = None) -> Launch:
    """This process as a rank, from ``environ`` (by default the process's own variables).

    ``launcher``: a name in ``LAUNCHERS``, to use that launcher's variables whatever else is set.

    Raises:
        LaunchError: a variable is missing or malformed, or two contradict each other.
        ValueError: there is no launcher of that name.
    """
    variables = Variables(os.environ if environ is None else environ)
    if launcher is not None:
        if launcher not in LAUNCHERS:
            raise ValueError(f"launcher={launcher!r}: use one of {', '.join(LAUNCHERS)}")
        return LAUNCHERS[launcher](variables)
    return LAUNCHERS[_innermost(variables)](variables)


def is_rank_0() -> bool:
    """Whether this process may print what one rank of a job prints. Without a launcher it may."""
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return Variables(os.environ).text(*names) in (None, "0")


def _innermost(variables: Variables) -> str:
    if "TORCHELASTIC_RUN_ID" in variables:
        return "torchrun"
    found: List[str] = []
    if "OMPI_COMM_WORLD_RANK" in variables:
        found.append("openmpi")
    # srun --mpi=pmi2 sets PMI_RANK too.
    if "PMI_RANK" in variables and ("MPI_LOCALRANKID" in variables or not slurm.is_task(variables)):
        found.append("mpich")
    if len(found) > 1:
        raise LaunchError(
            "OMPI_COMM_WORLD_RANK and PMI_RANK are both set, so Open MPI and MPICH both started this process: "
            "pass launcher='openmpi' or launcher='mpich', whichever is the inner one"
        )
    if found:
        return found[0]
    if slurm.is_task(variables):
        return "slurm"
    if "RANK" in variables:
        return "env"
    slurm.refuse_job_without_step(variables)
    raise LaunchError(
        f"no launcher started this process (RANK is not set): {_TORCHRUN}, or with srun or mpirun, or set {_ENV}"
    )


def _torchrun(variables: Variables) -> Launch:
    name = f"torchrun {variables.text('TORCHELASTIC_RUN_ID')}"
    return _from_env(variables, "torchrun", name, fix=_TORCHRUN)


def _env(variables: Variables) -> Launch:
    return _from_env(variables, "env", "RANK and WORLD_SIZE", fix=f"set {_ENV} on every rank")


def _from_env(variables: Variables, launcher: str, job: str, *, fix: str) -> Launch:
    rank, world_size, local_rank = (variables.number(name, fix=fix) for name in _NAMES[:3])
    local_world_size = variables.optional_number("LOCAL_WORLD_SIZE")
    check_bounds(rank, world_size, local_rank, local_world_size, _NAMES)
    address, port = variables.text("MASTER_ADDR"), variables.port()
    if address is None or port is None:
        raise LaunchError(f"{'MASTER_PORT' if address else 'MASTER_ADDR'} is not set: {fix}")
    return Launch(launcher, job, rank, world_size, local_rank, local_world_size, address, port)


#: How each launcher's variables are read.
LAUNCHERS: Dict[str, Callable[[Variables], Launch]] = {
    "torchrun": _torchrun,
    "openmpi": mpi.open_mpi,
    "mpich": mpi.hydra,
    "slurm": slurm.launch,
    "env": _env,
}
