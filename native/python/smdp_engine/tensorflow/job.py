"""This process as a rank of a job: ``init``, its rank and sizes, ``shutdown``."""

import atexit
import os
import sys
from pathlib import Path
from typing import NamedTuple, Optional, Sequence

from .._library import build
from . import library

PACKAGE = "smdistributed.dataparallel.tensorflow"
# The variables that the entrypoint and torchrun set, then those of Open MPI.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK")
_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
_LOCAL_RANK = ("LOCAL_RANK", "SMDATAPARALLEL_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_MASTER = ("MASTER_ADDR", "SMDATAPARALLEL_SERVER_ADDR")


class _Job(NamedTuple):
    rank: int
    size: int
    local_rank: int
    local_size: int


_job: Optional[_Job] = None
_process = 0  # the ID of the process that joined; a fork of it is not part of the job
_leaves = False  # whether _leave is registered for the interpreter's exit


def init() -> None:
    """Join the job. Blocks until all its ranks have joined.

    Raises:
        RuntimeError: it was called before; no launcher started this process; or the ranks could not connect.
        ImportError: the operations were not built, or were built for another TensorFlow.
    """
    global _job, _process, _leaves  # noqa: PLW0603 (a process is one rank of one job)
    if _job is not None:
        raise RuntimeError(f"{PACKAGE}.init() called more than once: call it once in a process")
    job = _Job(_number(_RANK), _number(_SIZE), _number(_LOCAL_RANK), _number(_LOCAL_SIZE))
    library.open_engine(job.rank, job.size, _variable(_MASTER))
    _job = job
    _process = os.getpid()
    if not _leaves:
        atexit.register(_leave)
        _leaves = True
    if job.rank == 0:
        sys.stderr.write(f"smdp: {PACKAGE} is smdp-engine {build()} ({Path(__file__).parents[1]})\n")


def is_initialized() -> bool:
    return _job is not None


def shutdown() -> None:
    """Leave the job. The exit of the script does the same."""
    global _job  # noqa: PLW0603
    if _job is not None and os.getpid() == _process:
        _job = None
        library.close_engine()


def rank() -> int:
    """This process's rank in the job."""
    return _own().rank


def size() -> int:
    """The number of processes of the job, one for each GPU."""
    return _own().size


def local_rank() -> int:
    """This process's rank on its host: the index of its GPU."""
    return _own().local_rank


def local_size() -> int:
    """The number of processes on this host."""
    return _own().local_size


def _own() -> _Job:
    if _job is None:
        raise RuntimeError(f"call {PACKAGE}.init() first")
    return _job


def _variable(names: Sequence[str]) -> str:
    for name in names:
        if name in os.environ:
            return os.environ[name]
    raise RuntimeError(
        f"{PACKAGE}.init(): {names[0]} is not set, so no launcher started this process. Start it with smdp-launch."
    )


def _number(names: Sequence[str]) -> int:
    text = _variable(names)
    if not text.isdecimal():
        raise RuntimeError(f"{PACKAGE}.init(): {names[0]} must be a number, found {text!r}")
    return int(text)


def _leave() -> None:
    """Leave the job at the interpreter's exit. After an exception close the connections without final messages, so that
    the other ranks learn of the loss at once."""
    if os.getpid() != _process:
        return
    if hasattr(sys, "last_type"):
        library.abandon_engine()
    shutdown()
    library.retire()
