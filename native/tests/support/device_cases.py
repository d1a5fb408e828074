"""Test cases of the backend with tensors on a device: the bodies of ranks' scripts.

The preamble of a device defines ``device``, and ``slowly(values)``: a tensor on the device whose values arrive late.
"""

from typing import Dict, List, Optional

import ranks

LATE = """
sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)  # its runtime is found by the names of its functions
import late_device
torch.utils.rename_privateuse1_backend("late")
torch._register_device_module("late", late_device)
device = torch.device("late")
dist.Backend.backend_capability["smddp"].append("late")
def slowly(values):
    # The device delays every copy.
    return torch.full_like(values, 77, device=device).copy_(values, non_blocking=True)
"""

CUDA = """
torch.cuda.set_device(rank % torch.cuda.device_count())
device = torch.device("cuda", torch.cuda.current_device())
def slowly(values):
    there = torch.full_like(values, 77, device=device)
    torch.cuda._sleep(20_000_000)
    return there.copy_(values, non_blocking=True)
"""

INIT = """
import datetime, warnings
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=60))
def mine(count, dtype=torch.float32, of=None):
    generator = torch.Generator().manual_seed(1000 + (rank if of is None else of))
    return torch.randint(-9, 9, (count,), generator=generator).to(dtype)
def summed(count, dtype=torch.float32):
    return sum(mine(count, dtype, of=i) for i in range(size))
def empty(*shape, dtype=torch.float32):
    return torch.full(shape, 55, dtype=dtype, device=device)
def same(there, here):
    return torch.equal(there.cpu(), here)
SMALL, LARGE = 1000, 2_500_000  # elements; the large tensors are sent in three pieces
"""

CASES = {
    "sums": """
for count in (0, 1, SMALL, LARGE):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        t = slowly(mine(count, dtype)); dist.all_reduce(t); assert same(t, summed(count, dtype)), (count, dtype)
    t = slowly(mine(count)); dist.reduce(t, dst=2); assert rank != 2 or same(t, summed(count))
    t = slowly(mine(count)); dist.all_reduce(t, op=dist.ReduceOp.AVG); assert same(t, summed(count) / size)
    whole = slowly(mine(count * size))
    out = empty(count); dist.reduce_scatter_tensor(out, whole)
    assert same(out, summed(count * size)[rank * count : (rank + 1) * count]), count
    parts = [slowly(mine(count + i)) for i in range(size)]
    out = empty(count + rank); dist.reduce_scatter(out, parts); assert same(out, summed(count + rank)), count
grid = slowly(mine(LARGE).view(500, -1)).t(); dist.all_reduce(grid); assert same(grid, summed(LARGE).view(500, -1).t())
""",
    "copies": """
for count in (0, 1, SMALL, LARGE):
    for dtype in (torch.float32, torch.uint8, torch.bool):
        t = slowly(mine(count, dtype)); dist.broadcast(t, src=1); assert same(t, mine(count, dtype, of=1)), count
        out = empty(size * count, dtype=dtype); dist.all_gather_into_tensor(out, slowly(mine(count, dtype)))
        assert same(out, torch.cat([mine(count, dtype, of=i) for i in range(size)])), count
    outs = [empty(count) for _ in range(size)]; dist.all_gather(outs, slowly(mine(count)))
    assert all(same(o, mine(count, of=i)) for i, o in enumerate(outs)), count
    outs = [empty(count + i) for i in range(size)]; dist.all_gather(outs, slowly(mine(count + rank)))
    assert all(same(o, mine(count + i, of=i)) for i, o in enumerate(outs)), count
grids = [empty(3, 1000).t() for _ in range(size)]; dist.all_gather(grids, slowly(mine(3000).view(1000, 3)))
assert all(same(grid, mine(3000, of=i).view(1000, 3)) for i, grid in enumerate(grids))
grid = slowly(mine(3000).view(3, 1000)).t(); dist.broadcast(grid, src=3)
assert same(grid, mine(3000, of=3).view(3, 1000).t())
""",
    "messages": """
for count in (1, SMALL, LARGE):
    outs = [empty(count) for _ in range(size)]
    dist.all_to_all(outs, [slowly(mine(count)) for _ in range(size)])
    assert all(same(o, mine(count, of=i)) for i, o in enumerate(outs))
    out = empty(size * count); dist.all_to_all_single(out, slowly(mine(count).repeat(size)))
    assert same(out, torch.cat([mine(count, of=i) for i in range(size)]))
    outs = [empty(count) for _ in range(size)] if rank == 1 else None
    dist.gather(slowly(mine(count)), outs, dst=1)
    assert rank != 1 or all(same(o, mine(count, of=i)) for i, o in enumerate(outs))
    out = empty(count)
    dist.scatter(out, [slowly(mine(count, of=i)) for i in range(size)] if rank == 2 else None, src=2)
    assert same(out, mine(count))
    right, left = (rank + 1) % size, (rank - 1) % size
    out = empty(count)
    both = [dist.P2POp(dist.isend, slowly(mine(count)), right), dist.P2POp(dist.irecv, out, left)]
    for work in dist.batch_isend_irecv(both): work.wait()
    assert same(out, mine(count, of=left))
    if rank == 0:
        from_whom = set()
        for _ in range(size - 1):
            who = dist.recv(out); assert same(out, mine(count, of=who)); from_whom.add(who)
        assert from_whom == set(range(1, size))
    else:
        dist.send(slowly(mine(count)), 0)
""",
    "coalesced calls sparse sums objects and barriers": """
ts = [slowly(mine(count)) for count in (1, SMALL, LARGE)]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dist.all_reduce_coalesced(ts)
assert all(same(t, summed(t.numel())) for t in ts)
everything = [None] * size; dist.all_gather_object(everything, {"rank": rank}); assert everything[2] == {"rank": 2}
dist.barrier()
if device.type == "cuda":
    t = torch.zeros(100, device=device); t[rank] = rank + 1; t[50] = 1
    t = t.to_sparse(); dist.all_reduce(t)
    assert [t.to_dense()[i].item() for i in (0, 1, 2, 3, 50)] == [1, 2, 3, 4, 4]
    dist.barrier(device_ids=[device.index])
""",
    "calls for host and device keep their order": """
works, checks = [], []
order = torch.Generator().manual_seed(3)
for i in range(200):
    count = int(torch.randint(1, 5000, (1,), generator=order))
    there = bool(torch.randint(0, 2, (1,), generator=order))
    values = torch.full((count,), float(i + rank))
    t = slowly(values) if there else values
    works.append(dist.all_reduce(t, async_op=True)); checks.append((t, float(size * i + sum(range(size)))))
for work, (t, want) in zip(works, checks):
    work.wait(); assert (t.cpu() == want).all(), want
""",
    "named buffers may go in different orders": """
import smdp_engine.torch_backend
compiled = smdp_engine.torch_backend.adapter()
ours = dist.group.WORLD._get_backend(device)
buffers = [slowly(torch.full((LARGE,), float(10 * i + rank))) for i in range(3)]
order = [0, 1, 2] if rank % 2 else [2, 0, 1]
works = [compiled.average_named(ours, buffers[i], "lane", 0, i, 3) for i in order]
for work in works: work.wait()
for i, buffer in enumerate(buffers):
    assert (buffer.cpu() == 10 * i + sum(range(size)) / size).all(), i
""",
    "inference tensors": """
with torch.inference_mode():
    for count in (SMALL, LARGE):
        work = dist.all_reduce(t := slowly(mine(count)), async_op=True)
        while not work.is_completed(): time.sleep(0.001)
        work.wait(); assert same(t, summed(count))
        dist.broadcast(t := slowly(mine(count)), src=1); assert same(t, mine(count, of=1))
""",
    "results of complete calls can be used": """
for count in (1, SMALL, LARGE):
    work = dist.all_reduce(t := slowly(mine(count)), async_op=True)
    while not work.is_completed(): time.sleep(0.001)
    assert same(t, summed(count))
""",
    "released memory is not reused too early": """
for round in range(10):
    works = []
    for count in (SMALL, LARGE, 7):
        works.append(dist.all_reduce(slowly(mine(count)), async_op=True))
        works.append(dist.all_gather([empty(count) for _ in range(size)], slowly(mine(count)), async_op=True))
        works.append(dist.broadcast(empty(3, count).t(), src=0, async_op=True))
    others = [empty(count) for count in (SMALL, LARGE, 7, SMALL, LARGE, 7)]
    kept = works if round % 2 else []
    del works
    for work in kept: work.wait()
    assert all(bool((other.cpu() == 55).all()) for other in others)
dist.barrier()
""",
    "callbacks see the results": """
def doubled(future): return [2 * t for t in future.value()]
def future_of(t): return dist.all_reduce(t, async_op=True).get_future()
futures = [future_of(slowly(mine(count))).then(doubled) for count in (1, SMALL, LARGE)]
for future, count in zip(futures, (1, SMALL, LARGE)):
    assert same(future.wait()[0], 2 * summed(count))
work = dist.all_reduce(t := slowly(mine(LARGE)), async_op=True)
while not work.is_completed(): time.sleep(0.001)
assert work.is_success()
assert same(work.get_future().wait()[0], summed(LARGE))
works = [dist.all_reduce(slowly(mine(10)), async_op=True) for _ in range(3)]
assert all(same(one[0], summed(10)) for one in torch.futures.collect_all([w.get_future() for w in works]).wait()
           for one in [one.value()])
""",
    "models train as on the host": """
def trained(where, wrap):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)).to(where)
    ddp = wrap(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, foreach=False)
    for step in range(5):
        torch.manual_seed(100 * step + rank)
        loss = ddp(torch.randn(8, 20).to(where)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    return torch.cat([p.detach().cpu().reshape(-1) for p in model.parameters()])
import smdistributed.dataparallel.torch.distributed as first
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as First
from torch.nn.parallel import DistributedDataParallel as Torch
ways = {
    "DDP": lambda m: Torch(m, bucket_cap_mb=0.01),
    "DDP with views": lambda m: Torch(m, gradient_as_bucket_view=True),
    "DDP that finds unused": lambda m: Torch(m, find_unused_parameters=True),
    "first generation": First,
}
for name, wrap in ways.items():
    here, there = trained("cpu", wrap), trained(device, wrap)
    assert torch.allclose(here, there, rtol=1e-5, atol=1e-6), (name, (here - there).abs().max())
""",
    "gradients of half precision are sent in half precision": """
from torch.nn.parallel import DistributedDataParallel
for dtype in (torch.float16, torch.bfloat16):
    model = DistributedDataParallel(torch.nn.Linear(64, 64, bias=False).to(device, dtype))
    model(torch.full((1, 64), float(rank), device=device, dtype=dtype)).sum().backward()
    assert model.module.weight.grad.dtype == dtype
    assert (model.module.weight.grad.cpu() == sum(range(size)) / size).all()
""",
    "unsupported calls are refused without effect": """
def refused(call, words):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
refused(lambda: dist.all_gather([torch.empty(3)] * size, slowly(torch.ones(3))), "one device, found")
t = slowly(mine(10)); dist.all_reduce(t); assert same(t, summed(10))
""",
}

# For the late device only, whose queues can be paused.
HELD = {
    "waiting blocks the stream and not the host": """
for way in ("wait", "future", "test"):
    out = empty(SMALL)
    out.cpu()  # wait until it is created
    work = dist.broadcast(slowly(mine(SMALL, of=0)) if rank == 0 else out, src=0, async_op=True)
    if rank != 0:
        late_device.hold(True)  # from here on no copy to the device completes
        if way == "test":
            while not work.is_completed(): time.sleep(0.001)
        else:
            (work if way == "wait" else work.get_future()).wait()
        copy = torch.empty_like(out).copy_(out)  # runs later on the same stream
        time.sleep(0.05)  # in which it runs if the stream does not wait
        late_device.hold(False)
        assert same(copy, mine(SMALL, of=0)), way
    work.wait()
    dist.barrier()
""",
    "a device that hangs is reported at the deadline": """
group = dist.new_group(timeout=datetime.timedelta(seconds=1))
late_device.hold(True)
try:
    dist.all_reduce(slowly(torch.ones(3)), group=group)
    raise AssertionError("it ended")
except RuntimeError as error:
    assert "the device has not finished" in str(error) and "1.0 s" in str(error), error
late_device.hold(False)
try:  # it has the number of the call that did not begin: no rank may confuse it with that call
    dist.all_reduce(torch.ones(3), group=group)
    raise AssertionError("it continued")
except RuntimeError as error:
    assert "the device has not finished" in str(error), error
""",
    "a device that fails is reported": """
group = dist.new_group()
t = slowly(torch.ones(3))
late_device.fail(True)
try:
    dist.all_reduce(t, group=group)
    raise AssertionError("it ended")
except RuntimeError as error:
    assert "the device failed" in str(error), error
late_device.fail(False)
""",
    "destroying a group ends calls that wait for the device": """
group = dist.new_group()
late_device.hold(True)
work = dist.all_reduce(slowly(torch.ones(3)), group=group, async_op=True)
dist.destroy_process_group(group)
try:
    work.wait()
    raise AssertionError("it ended")
except RuntimeError as error:
    assert "was destroyed before the call began" in str(error), error
late_device.hold(False)
""",
}


def job(preamble: str, cases: Dict[str, str], env: Optional[Dict[str, str]] = None) -> List[ranks.Outcome]:
    """Run the cases in one job of 2 hosts x 2 ranks; each rank prints the cases that passed."""
    script = preamble + INIT + ranks.in_turn(cases)
    return ranks.start([2, 2], script + "dist.destroy_process_group()\n", env=env).finish(timeout=280)


def passed(name: str, outcomes: List[ranks.Outcome]) -> None:
    for outcome in outcomes:
        assert f"passed {name}\n" in outcome.out, f"rank {outcome.rank}:\n{outcome.err}"
