"""Starts scripts below launchers: torchrun, mpirun, srun. They run in the environment of a user's shell."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

#: What launchers set; a test may itself run below one.
_LAUNCHERS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "GROUP_",
    "TORCHELASTIC",
    "OMPI_",
    "PMI",
    "MPI_",
    "SLURM",
    "SMDP_",
)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

#: Prints the ranks as init() returns them, what it sets, and a sum over all ranks.
TRAIN = """
import os
import torch
import torch.distributed as dist
import smdp_engine.torch

launch = smdp_engine.torch.init()
total = torch.full((300_000,), float(launch.rank + 1))
dist.all_reduce(total)
set_ = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
assert set_ == [str(one) for one in launch[2:6]], set_
assert (total == total[0]).all()
ranks = f"rank {launch.rank} of {launch.world_size}, {launch.local_rank} of {launch.local_world_size}"
os.write(1, f"{ranks}: {total[0].item():g}\\n".encode())  # at once, or lines mix
dist.destroy_process_group()
"""
#: The same without torch and without a connection.
DETECT = """
import os
from smdp_engine.launchers import LaunchError, detect
try:
    line = str(detect()[2:7])
except LaunchError as error:
    line = f"refused: {error}"
os.write(1, f"{line}\\n".encode())
"""


def environment(**more: str) -> Dict[str, str]:
    """This process's variables without those of launchers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def start(command: List[str], folder: Path, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(command: List[str], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return finish(start(command, folder, **variables))


def finish(process: "subprocess.Popen[str]", timeout: float = 150) -> "subprocess.CompletedProcess[str]":
    """Wait for the launcher. At the time limit all its processes are killed."""
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, 9)
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
