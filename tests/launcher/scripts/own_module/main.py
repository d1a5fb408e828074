"""The first generation of AWS's library: a module of its own in place of torch.distributed."""

import os

import click
import smdistributed.dataparallel.torch.distributed as dist
import torch
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel


@click.command()
@click.option("--epochs", default=2)
@click.option("--momentum", type=float, default=0.9)
@click.option("--nesterov/--plain", default=True)
@click.option("-s", "--schedule", default="off", help="on\nor off")
@click.option("--tag", required=True)
def train(epochs, momentum, nesterov, schedule, tag):
    dist.init_process_group()
    torch.cuda.set_device(dist.get_local_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 1).cuda(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=momentum, nesterov=nesterov)
    for _ in range(epochs):
        for name in sorted(os.listdir("/opt/ml/input/data/numbers")):
            optimizer.zero_grad()
            model(torch.load(os.path.join("/opt/ml/input/data/numbers", name))).sum().backward()
            optimizer.step()


if __name__ == "__main__":
    train()
