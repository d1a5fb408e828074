"""A loop whose loader waits for its samples for most of each step. Options: the number of steps."""

import argparse
import os
import time
from pathlib import Path

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from smdp_engine import progress

BATCH = 8
SAMPLE_S = 0.03


class Samples(Dataset):
    """Each sample reads the channel's file and waits as for a slow storage."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.path = Path(os.environ["SM_CHANNEL_TRAIN"]) / "part-0"

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        size = len(self.path.read_bytes())
        time.sleep(SAMPLE_S)
        return torch.full((4,), float(size + index))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
steps = parser.parse_args().steps
torch.set_num_threads(1)
dist.init_process_group("smddp")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step, batch in enumerate(DataLoader(Samples(steps * BATCH), batch_size=BATCH), 1):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    progress.step(step, steps, loss=float(loss.detach()))
if dist.get_rank() == 0:
    progress.emit("result", final=float(loss.detach()))
dist.destroy_process_group()
