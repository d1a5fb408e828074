"""Libraries on top of torch.distributed give the same parameters on the backend and on Gloo, in the same processes."""

from pathlib import Path

import pytest
import ranks

pytestmark = pytest.mark.torch

INIT = """
import copy, warnings
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
warnings.simplefilter("ignore")
dist.init_process_group("smddp")
gloo = dist.new_group(backend="gloo")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
def batches(steps):
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(8, 16, generator=generator) for _ in range(steps)]
def loss_of(model, x):
    return nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
def flat(model):
    return torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])
def same(ours, theirs, what, tolerance=1e-6):
    worst = (ours - theirs).abs().max().item()
    assert worst <= tolerance, f"{what}: parameters differ by {worst}"
    lowest, highest = ours.clone(), ours.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN); dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    assert torch.equal(lowest, highest), f"{what}: ranks differ"
"""

# DDP keeps its group forever, and Gloo's threads with it, with which PyTorch 2.13 sometimes aborts at its exit.
LEAVE = """
dist.barrier()
print("through", flush=True)
dist.destroy_process_group()
os._exit(0)
"""


def _run(body: str, **settings: object) -> None:
    for outcome in ranks.run([2, 2], INIT + body + LEAVE, **settings):
        assert outcome.out.endswith("through\n")


def test_distributed_data_parallel_equals_gloo() -> None:
    _run(
        """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = net(), nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return (self.left if self.use_left else self.right)(self.trunk(x))
def train(group, model, hook=None, accumulate=False, bucket_cap_mb=0.01, **options):
    torch.manual_seed(0)
    ddp = DDP(model, process_group=group, bucket_cap_mb=bucket_cap_mb, **options)
    if hook: ddp.register_comm_hook(*hook(group))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step, x in enumerate(batches(6)):
        model.use_left = (step + rank) % 2 == 0
        if accumulate and step % 3 != 2:
            with ddp.no_sync(): loss_of(ddp, x).backward()
            continue
        loss_of(ddp, x).backward()
        optimizer.step(); optimizer.zero_grad()
    return flat(model)
def both(what, make=net, tolerance=1e-6, **options):
    same(train(None, make(), **options), train(gloo, make(), **options), what, tolerance)
both("plain"); both("views", gradient_as_bucket_view=True); both("static graph", static_graph=True)
torch.manual_seed(0)
both("unused parameters", Branches, find_unused_parameters=True)
both("accumulated", accumulate=True)
both("fp16 hook", hook=lambda group: (group, default_hooks.fp16_compress_hook), tolerance=2e-3)
# One bucket: this hook starts operations when others end, with several buckets in a different order on each rank.
both("PowerSGD", bucket_cap_mb=25, tolerance=1e-4,
     hook=lambda group: (powerSGD_hook.PowerSGDState(group, 2, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook))
def uneven(group):
    model = net(); ddp = DDP(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join():
        for x in batches(2 + rank):
            optimizer.zero_grad(); loss_of(ddp, x).backward(); optimizer.step()
    return flat(model)
same(uneven(None), uneven(gloo), "join")
class Counted(nn.Module):
    def __init__(self):
        super().__init__(); self.net = net(); self.register_buffer("seen", torch.tensor([float(rank)]))
    def forward(self, x): return self.net(x)
counted = Counted(); DDP(counted, broadcast_buffers=True)(batches(1)[0]); assert counted.seen == 0
"""
    )


def test_libraries_that_shard_parameters_and_states_equal_gloo(tmp_path: Path) -> None:
    _run(
        f"""
folder = {str(tmp_path)!r}
"""
        """
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
def steps(model, optimizer):
    for x in batches(5):
        optimizer.zero_grad(); loss_of(model, x).backward(); optimizer.step()
reference = net(); ddp = DDP(reference, process_group=gloo)
steps(ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)); reference = flat(reference)

model = FSDP(net(), process_group=None, device_id=torch.device("cpu"), use_orig_params=True)
steps(model, torch.optim.Adam(model.parameters(), lr=0.01))
with FSDP.summon_full_params(model): same(flat(model), reference, "FSDP", 1e-5)

mesh = init_device_mesh("cpu", (size,))
sharded = net()
for layer in sharded: fully_shard(layer, mesh=mesh)
fully_shard(sharded, mesh=mesh)
optimizer = torch.optim.Adam(sharded.parameters(), lr=0.01)
steps(sharded, optimizer)
whole = torch.cat([p.full_tensor().detach().reshape(-1) for p in sharded.parameters()])
same(whole, reference, "FSDP2", 1e-5)

model = net(); ddp = DDP(model)
steps(ddp, ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01))
same(flat(model), reference, "ZeRO", 1e-5)

state = {"model": sharded.state_dict()}
checkpoint.save(state, checkpoint_id=folder)
fresh = net()
for layer in fresh: fully_shard(layer, mesh=mesh)
fully_shard(fresh, mesh=mesh)
state = {"model": fresh.state_dict()}
checkpoint.load(state, checkpoint_id=folder); fresh.load_state_dict(state["model"])
read = torch.cat([p.full_tensor().detach().reshape(-1) for p in fresh.parameters()])
assert torch.equal(read, whole)

parallel = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
x = torch.randn(8, 16, generator=torch.Generator().manual_seed(7))
alone = net()
assert torch.allclose(parallel(x), alone(x), atol=1e-6)
parallel(x).sum().backward(); alone(x).sum().backward()
assert torch.allclose(parallel[0].weight.grad.full_tensor(), alone[0].weight.grad, atol=1e-6)
both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
grid = parallelize_module(net(), both["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(grid, mesh=both["data"])
grid(x).sum().backward()
assert torch.allclose(grid[0].weight.grad.full_tensor(), alone[0].weight.grad, atol=1e-6)
"""
    )


def test_wrapper_with_flat_buckets_and_scaled_losses_equals_gloo() -> None:
    _run(
        """
class Wrapped(nn.Module):
    def __init__(self, module, group, bucket=1000):
        super().__init__()
        self.module, self.group = module, group
        for p in module.parameters(): dist.broadcast(p.data, 0, group=group)
        self.buckets, self.bucket = [[]], bucket
        for p in reversed(list(module.parameters())):
            self.buckets[-1].append(p)
            if sum(q.numel() for q in self.buckets[-1]) >= bucket: self.buckets.append([])
    def forward(self, x): return self.module(x)
    def reduce(self):
        pending = []
        for bucket in filter(None, self.buckets):
            whole = torch.cat([p.grad.reshape(-1) for p in bucket]); whole /= size
            pending.append((bucket, whole, dist.all_reduce(whole, group=self.group, async_op=True)))
        for bucket, whole, work in pending:
            work.wait()
            for p, part in zip(bucket, whole.split([p.numel() for p in bucket])): p.grad.copy_(part.view_as(p))
def train(group):
    model = Wrapped(net(), group); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches(5):
        optimizer.zero_grad(); loss_of(model, x).backward(); model.reduce(); optimizer.step()
    return flat(model)
ours = dist.new_group(backend="smddp")
same(train(ours), train(gloo), "flat buckets")

def scaled(group, poisoned):
    model = net(); ddp = DDP(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 8)
    skipped = []
    for step, x in enumerate(batches(5)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16): loss = loss_of(ddp, x)
        if step == poisoned and rank == 1: loss = loss * float("inf")
        scaler.scale(loss).backward()
        before = flat(model); scaler.step(optimizer); scaler.update()
        skipped.append(torch.equal(before, flat(model)))
    assert skipped == [step == poisoned for step in range(5)], skipped
    return flat(model)
same(scaled(None, 2), scaled(gloo, 2), "scaled losses", 1e-6)

def halves(group, dtype):
    model = net().to(dtype); ddp = DDP(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for x in batches(5):
        optimizer.zero_grad(); loss_of(lambda x: ddp(x).float(), x.to(dtype)).backward(); optimizer.step()
        assert all(p.grad.dtype == dtype for p in model.parameters())
    return flat(model)
for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
    same(halves(None, dtype), halves(gloo, dtype), f"gradients of {dtype}", tolerance)
"""
    )


@pytest.mark.runs
def test_debug_detail_checks_calls_and_names_differences() -> None:
    _run(
        """
model = net(); ddp = DDP(model); loss_of(ddp, batches(1)[0]).backward()
t = torch.ones(3); dist.all_reduce(t); assert (t == size).all()
group = dist.new_group()
try:
    dist.all_reduce(torch.ones(3 if rank else 4), group=group)
except RuntimeError as error:
    assert "shapes" in str(error).lower() or "mismatch" in str(error).lower(), error
else:
    raise SystemExit("different shapes went through")
""",
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    )
