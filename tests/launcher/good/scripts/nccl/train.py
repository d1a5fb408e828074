"""Stands for a script of torch.distributed: the job files beside this folder are about what is around it."""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
arguments, _ = parser.parse_known_args()
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
for epoch in range(arguments.epochs):
    print(f"epoch {epoch} loss {1 / (epoch + 1)} samples/s {100 * dist.get_world_size()}")
if dist.get_rank() == 0:
    torch.save({}, f"{os.environ['SM_MODEL_DIR']}/model.pt")
