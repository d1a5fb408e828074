"""Fits a line to generated points, with PyTorch's DistributedDataParallel."""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    points, slope = torch.randn(512, 8), torch.randn(8, 1)
    mine = points.chunk(world_size)[rank]

    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
    for epoch in range(arguments.epochs):
        loss = torch.nn.functional.mse_loss(model(mine), mine @ slope)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    if rank == 0:
        torch.save(model.module.state_dict(), Path(os.environ.get("SM_MODEL_DIR", ".")) / "model.pt")
    dist.destroy_process_group()
    # The model's wrapper keeps Gloo's threads for ever, and now and then PyTorch 2.13 aborts when the interpreter ends
    # under them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
