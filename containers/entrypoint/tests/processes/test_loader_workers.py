"""A training script whose DataLoaders have processes saves after a stop signal."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from entrypoint_support.host import Host

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="torch and smdp-engine are not installed")]

# By the time of the save, torch has noticed the end of a process of the loader.
TRAINS = """
import os, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from smdp_engine.checkpoint import Checkpoints, StopFlag

class Samples(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(3)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    checkpoints, stop = Checkpoints(), StopFlag()
    loader = DataLoader(Samples(), batch_size=4, num_workers=2, multiprocessing_context=os.environ["CONTEXT"])
    batches = iter(loader)
    for step, batch in enumerate(batches):
        model(batch).sum().backward()
        if step == 1:
            print("training", os.environ["RANK"], flush=True)
        if stop.agreed():
            break
    time.sleep(0.5)
    checkpoints.save(step, model=model.state_dict())
    print("saved, loader runs:", all(process.is_alive() for process in batches._workers), flush=True)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("context", "wrapper"),
    [
        ("fork", None),
        pytest.param("spawn", None, marks=pytest.mark.runs),
        pytest.param("fork", f"#!/bin/bash\n{sys.executable} train.py\necho finished\n", marks=pytest.mark.runs),
    ],
)
def test_script_saves_although_its_loaders_have_processes(host: Host, context: str, wrapper: str | None) -> None:
    host.code("train.py", TRAINS)
    host.job(wrapper, program="train.sh" if wrapper else "train.py")
    folder = host.root / "checkpoints"
    host.start(SMDP_WORKERS_PER_HOST="2", CONTEXT=context, SMDP_CHECKPOINT_DIR=str(folder))
    for rank in (0, 1):
        host.wait_for_line(f"training {rank}")
    host.signal()
    assert host.wait() == (143 if wrapper else 0), host.text
    assert all("saved, loader runs: True" in host.of_rank(rank) for rank in (0, 1))
    assert (folder / "LATEST").exists()
    assert host.failure == ""
