"""The training script of bench.py: a small DDP model whose steps take a known time, and one injected cause.

Computing sleeps, as a CPU does that waits for a GPU, so that the workers of the benchmark do not compete for its cores.
Prints how long the injected code took where that depends on the machine.
"""

import argparse
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset

BATCH = 4


def spin(seconds: float) -> None:
    """Use a CPU for so many seconds of its time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


class Samples(Dataset[torch.Tensor]):
    """Samples that cost ``blocked`` seconds of waiting and ``cpu`` seconds of computing for each batch."""

    def __init__(self, count: int, blocked: float, cpu: float) -> None:
        self.count, self.blocked, self.cpu = count, blocked / BATCH, cpu / BATCH
        self.seconds = 0.0  # that were spent here, in this process

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        before = time.perf_counter()
        if self.blocked:
            time.sleep(self.blocked)
        spin(self.cpu)
        self.seconds += time.perf_counter() - before
        return torch.full((64,), float(index % 7))


class StoredSamples(IterableDataset[torch.Tensor]):
    """Samples of ``SIZE`` bytes, read in sequence from the file of this rank in the channel ``train``."""

    SIZE = 1 << 16

    def __init__(self, rank: int) -> None:
        self.path = Path(os.environ["SM_CHANNEL_TRAIN"]) / f"samples-{rank}"

    def __iter__(self) -> Iterator[torch.Tensor]:
        with self.path.open("rb", buffering=0) as file:
            while sample := file.read(self.SIZE):
                yield torch.full((64,), float(len(sample) % 7))


class Step(nn.Module):
    """A layer whose forward pass takes ``seconds`` longer."""

    def __init__(self, seconds: float, width: int) -> None:
        super().__init__()
        self.seconds = seconds
        self.layers = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 8))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        result: torch.Tensor = self.layers(values)
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inject", default="none")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each step, that the injected cause takes")
    parser.add_argument("--compute", type=float, default=0.05, help="seconds that each step computes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--loader-workers", type=int, default=1)
    arguments = parser.parse_args()
    inject, seconds = arguments.inject, arguments.seconds
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend

    dist.init_process_group("smddp")
    slow = inject == "slow_worker" and rank == world_size - 1
    slow |= inject == "slow_host" and rank >= world_size // 2
    compute = arguments.compute + (seconds if slow else 0.0)
    model = DistributedDataParallel(Step(compute, arguments.width))
    # One loader worker hides `compute` seconds of loading: what exceeds them is exposed.
    blocked = compute + seconds if inject == "source" else 0.0
    cpu = compute + seconds if inject == "decoding" else seconds if inject == "workers" else 0.0
    data = StoredSamples(rank) if inject == "store" else Samples(BATCH * arguments.steps, blocked, cpu)
    workers = 0 if inject == "workers" else arguments.loader_workers
    # A host of SageMaker has cores beside the loaders; here the training threads go first instead.
    loader = DataLoader(data, BATCH, num_workers=workers, worker_init_fn=_give_way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader, 1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if inject == "checkpoints" and step % 5 == 0 and rank == 0:
            _save(5 * seconds)
        if inject == "evaluation" and step % 10 == 0:
            _evaluate(model, 10 * seconds)
    dist.barrier()
    dist.destroy_process_group()
    if inject == "workers" and rank == 0 and isinstance(data, Samples):
        print(f"injected {1000 * data.seconds / arguments.steps:.2f} ms a step", flush=True)


def _give_way(worker: int) -> None:
    os.nice(19)


def _save(seconds: float) -> None:
    """Write checkpoints for so many seconds."""
    end = time.perf_counter() + seconds
    state = {"weights": torch.zeros(1 << 20)}
    while time.perf_counter() < end:
        torch.save(state, Path(os.environ["SM_MODEL_DIR"]) / "checkpoint.pt")


@torch.no_grad()
def _evaluate(model: DistributedDataParallel, seconds: float) -> None:
    for batch in DataLoader(Samples(2 * BATCH, 0.0, 0.0), BATCH):
        model.module(batch)
        time.sleep(max(0.0, seconds / 2 - model.module.seconds))


if __name__ == "__main__":
    main()
