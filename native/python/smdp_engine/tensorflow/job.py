"""This process as one of a job's ranks: ``init``, who it is, ``shutdown``."""

import atexit
import os
import sys
from pathlib import Path
from typing import NamedTuple, Optional, Sequence

from .._library import build
from . import library

PACKAGE = "smdistributed.dataparallel.tensorflow"
# What our entrypoint and torchrun set, and what Open MPI does.
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
_process = 0  # that joined: a fork of it has no part in the job
_leaves = False  # whether the interpreter's end is taken care of


def init() -> None:
    """Join the job. Blocks until all its ranks have.

    Raises:
        RuntimeError: called a second time; no launch started this process; or the ranks did not find each other.
        ImportError: the operations were not built, or were built for another TensorFlow.
    """
    global _job, _process, _leaves  # noqa: PLW0603 (a process is one rank of one job)
    if _job is not None:
        raise RuntimeError(f"{PACKAGE}.init() called more than once: a process joins one job")
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
    """Leave the job. A script that ends leaves it too."""
    global _job  # noqa: PLW0603
    if _job is not None and os.getpid() == _process:
        _job = None
        library.close_engine()


def rank() -> int:
    """Of this process among all of the job."""
    return _own().rank


def size() -> int:
    """How many processes, GPUs, the job has."""
    return _own().size


def local_rank() -> int:
    """Of this process among those of its host: the index of its GPU."""
    return _own().local_rank


def local_size() -> int:
    """How many processes this host has."""
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
        f"{PACKAGE}.init(): {names[0]} is not set, so no launch started this process. Start it with smdp-launch."
    )


def _number(names: Sequence[str]) -> int:
    text = _variable(names)
    if not text.isdecimal():
        raise RuntimeError(f"{PACKAGE}.init(): {names[0]} must be a number, found {text!r}")
    return int(text)


def _leave() -> None:
    """Say goodbye for a script that ends well, lest it look dead; cut the connections of one that ends by an
    exception, so that the others hear at once that it was lost."""
    if os.getpid() != _process:
        return
    if hasattr(sys, "last_type"):
        library.abandon_engine()
    shutdown()
    library.retire()
