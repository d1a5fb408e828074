"""Finds the job and the rank of this process in the variables of the launcher that started it.

``detect()`` knows torchrun, Open MPI, MPICH and Intel MPI, SLURM, and the variables RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT themselves. It only reads variables: it opens no file and no connection.
"""

from .detection import LAUNCHERS, detect, is_rank_0
from .launch import Launch, LaunchError

__all__ = ["LAUNCHERS", "Launch", "LaunchError", "detect", "is_rank_0"]
