"""FSDP2: a small transformer whose layers are sharded over all ranks. It computes in the requested type."""

import os
import sys

import injected
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BACKEND, TYPE = sys.argv[1], getattr(torch, sys.argv[2])
if BACKEND == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp

dist.init_process_group(BACKEND)
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0, batch_first=True), 2, enable_nested_tensor=False
)
policy = MixedPrecisionPolicy(param_dtype=TYPE, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
injected.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(100 + rank)
for _step in range(20):
    inputs = torch.randn(8, 12, 32, generator=generator)
    loss = (model(inputs).float() - inputs.flip(2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.9f}", flush=True)
if rank == 0:
    print(f"backend {dist.get_backend()}")
dist.destroy_process_group()
sys.stdout.flush()
if BACKEND == "gloo":
    os._exit(0)  # its threads sometimes abort the interpreter at its exit
