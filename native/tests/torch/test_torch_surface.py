"""Every call of torch.distributed on the backend, with all kinds of tensors and groups.

One job of four ranks on two hosts runs all cases, one after the other: starting its processes is what takes time.
"""

from typing import List

import pytest
import ranks

pytestmark = pytest.mark.torch

INIT = """
dist.init_process_group("smddp")
def since(*version):
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= version
def mine(*shape, dtype=torch.float32, of=None):
    generator = torch.Generator().manual_seed(1000 + (rank if of is None else of))
    values = torch.randint(-50, 50, shape, generator=generator)
    return values.to(dtype)
# A copy whose memory begins one byte after an element would.
def unaligned(t):
    memory = torch.frombuffer(bytearray(1 + t.numel() * t.element_size()), dtype=torch.uint8, offset=1)
    return memory.view(t.dtype).view(t.shape).copy_(t)
"""

CASES = {
    "what only moves may have any type and any layout": """
dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
          torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128]
for extra in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"):
    if hasattr(torch, extra):
        dtypes.append(getattr(torch, extra))
layouts = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "channels last": lambda t: t[:, :, :, None].contiguous(memory_format=torch.channels_last)[:, :, :, 0],
    # Not torch.stack, which has no float8 before torch 2.6.
    "every second": lambda t: torch.empty(*t.shape, 2, dtype=t.dtype)[..., 0].copy_(t),
    "empty": lambda t: t[:0],
    "unaligned": unaligned,
}
for dtype in dtypes:
    for name, laid in layouts.items():
        def of(who):
            return laid(mine(3, 4, 5, of=who).to(dtype))
        def same(a, b):
            return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        case = (dtype, name)
        t = of(rank); dist.broadcast(t, src=3); assert same(t, of(3)), case
        outs = [torch.empty_like(of(i)) for i in range(size)]
        dist.all_gather(outs, of(rank)); assert all(same(o, of(i)) for i, o in enumerate(outs)), case
        if rank == 1:
            outs = [torch.empty_like(of(i)) for i in range(size)]
            dist.gather(of(rank), outs, dst=1); assert all(same(o, of(i)) for i, o in enumerate(outs)), case
        else:
            dist.gather(of(rank), dst=1)
        t = torch.empty_like(of(rank))
        dist.scatter(t, [of(i) for i in range(size)] if rank == 2 else None, src=2); assert same(t, of(rank)), case
        outs = [torch.empty_like(of(i)) for i in range(size)]
        dist.all_to_all(outs, [of(rank) for _ in range(size)])
        assert all(same(o, of(i)) for i, o in enumerate(outs)), case
        t = torch.empty_like(of(0))
        if rank == 0: dist.send(of(0), 3, tag=5)
        if rank == 3: dist.recv(t, 0, tag=5); assert same(t, of(0)), case
""",
    "sums of complex numbers scaled sums and layouts": """
for dtype in (torch.complex64, torch.complex128):
    t = mine(7, 3, dtype=dtype) * (1 + 2j)
    want = sum(mine(7, 3, of=i, dtype=dtype) * (1 + 2j) for i in range(size))
    dist.all_reduce(t); assert torch.equal(t, want)
    t = mine(4, 6, dtype=dtype).t() * 1j
    dist.reduce(t, dst=1)
    assert rank != 1 or torch.equal(t, sum(mine(4, 6, of=i, dtype=dtype).t() * 1j for i in range(size)))
t = mine(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
strides = t.stride(); dist.all_reduce(t)
assert t.stride() == strides and torch.equal(t, sum(mine(2, 3, 4, 5, of=i) for i in range(size)))
t = unaligned(mine(100)) if rank == 2 else mine(100)
dist.all_reduce(t); assert torch.equal(t, sum(mine(100, of=i) for i in range(size)))
t = unaligned(torch.empty(25)); dist.reduce_scatter_tensor(t, unaligned(mine(100)))
assert torch.equal(t, sum(mine(100, of=i) for i in range(size)).chunk(size)[rank])
scaled = dist._make_nccl_premul_sum(0.5)
t = mine(100); dist.all_reduce(t, op=scaled); assert torch.equal(t, sum(mine(100, of=i) * 0.5 for i in range(size)))
t = torch.empty(25); dist.reduce_scatter_tensor(t, mine(100), op=scaled)
assert torch.equal(t, sum(mine(100, of=i) * 0.5 for i in range(size)).chunk(size)[rank])
guarded = mine(64).half(); t = guarded[:32]; after = guarded[32:].clone()
wide = dist._make_nccl_premul_sum(torch.tensor([2.0]))
dist.reduce(t, dst=0, op=wide); assert torch.equal(guarded[32:], after)
assert rank or torch.equal(t, sum(mine(64, of=i)[:32].half() * 2 for i in range(size)))
before = mine(9); t = before.clone(); dist.reduce(t, dst=2, op=dist.ReduceOp.AVG)
assert rank == 2 or torch.equal(t, before)
""",
    "reduce scatter": """
for count in (0, 1, 1000, 300_001):
    parts = lambda who: [mine(count, of=10 * who + i) for i in range(size)]
    want = sum(parts(who)[rank] for who in range(size))
    t = torch.empty(count); dist.reduce_scatter(t, parts(rank)); assert torch.equal(t, want)
    t = torch.empty(count); dist.reduce_scatter_tensor(t, torch.cat(parts(rank))); assert torch.equal(t, want)
    t = torch.empty(count)
    dist.reduce_scatter_tensor(t, torch.cat(parts(rank)), op=dist.ReduceOp.AVG); assert torch.equal(t, want / size)
    whole = torch.cat(parts(rank)); t = whole.chunk(size)[rank] if count else torch.empty(0)
    dist.reduce_scatter_tensor(t, whole); assert torch.equal(t, want)  # in place
""",
    "parts of different sizes": """
outs = [torch.empty(3 * i) for i in range(size)]
dist.all_gather(outs, mine(3 * rank)); assert all(torch.equal(o, mine(3 * i, of=i)) for i, o in enumerate(outs))
parts = lambda who: [mine(2 * i + 1, of=10 * who + i) for i in range(size)]
t = torch.empty(2 * rank + 1); dist.reduce_scatter(t, parts(rank))
assert torch.equal(t, sum(parts(who)[rank] for who in range(size)))
rows = lambda sender, receiver: (sender + 2 * receiver) % 4
sent = torch.cat([torch.full((rows(rank, to), 3), 10.0 * rank + to) for to in range(size)])
got = torch.empty(sum(rows(who, rank) for who in range(size)), 3)
dist.all_to_all_single(got, sent, [rows(who, rank) for who in range(size)], [rows(rank, to) for to in range(size)])
assert torch.equal(got, torch.cat([torch.full((rows(who, rank), 3), 10.0 * who + rank) for who in range(size)]))
got = torch.empty(8, 2); dist.all_to_all_single(got, torch.full((8, 2), float(rank)))
assert torch.equal(got[:, 0], torch.arange(4.0).repeat_interleave(2))
outs = [torch.empty(who + 1) for who in range(size)]
dist.all_to_all(outs, [torch.full((rank + 1,), float(rank)) for _ in range(size)])
assert all(torch.equal(o, torch.full((i + 1,), float(i))) for i, o in enumerate(outs))
""",
    "messages": """
after, before = (rank + 1) % size, (rank - 1) % size
for count in (0, 1, 5000, 500_000):
    t = torch.empty(count)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(count), after), dist.P2POp(dist.irecv, t, before)])
    for work in works: work.wait()
    assert torch.equal(t, mine(count, of=before))
if rank == 0:
    seen = set()
    for _ in range(size - 1):
        t = torch.empty(4); source = dist.recv(t); assert torch.equal(t, mine(4, of=source)); seen.add(source)
    assert seen == {1, 2, 3}
else:
    dist.send(mine(4), 0)
if rank == 1:
    for tag in (3, 1, 2): dist.send(torch.full((2,), float(tag)), 2, tag=tag)
if rank == 2:
    for tag in (1, 2, 3):
        t = torch.empty(2); dist.recv(t, 1, tag=tag); assert (t == tag).all()
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank}); assert [o["rank"] for o in objects] == [0, 1, 2, 3]
objects = [None] * size if rank == 3 else None
dist.gather_object(("me", rank), objects, dst=3); assert rank != 3 or objects == [("me", i) for i in range(size)]
got = [None]; dist.scatter_object_list(got, [i * i for i in range(size)] if rank == 0 else None, src=0)
assert got == [rank * rank]
listed = ["first", rank] if rank == 1 else [None, None]
dist.broadcast_object_list(listed, src=1); assert listed == ["first", 1]
if rank == 0 and since(2, 4): dist.send_object_list([{"to": 3}], dst=3)
if rank == 3 and since(2, 4):
    listed = [None]; dist.recv_object_list(listed, src=0); assert listed == [{"to": 3}]
""",
    "many tensors in one call": """
tensors = [mine(5), mine(70_000), mine(0)]
dist.all_reduce_coalesced(tensors)
assert all(torch.equal(t, sum(mine(t.numel(), of=i) for i in range(size))) for t in tensors)
lists = [[torch.empty(5), torch.empty(3, 2)] for _ in range(size)]
dist.all_gather_coalesced(lists, [mine(5), mine(3, 2)])
assert all(torch.equal(a, mine(5, of=i)) and torch.equal(b, mine(3, 2, of=i)) for i, (a, b) in enumerate(lists))
if since(2, 1):  # earlier versions of torch have no such manager
    gathered, summed = [torch.empty(size * n) for n in (3, 1000)], [torch.empty(n) for n in (3, 1000)]
    with dist._coalescing_manager() as works:
        for out, n in zip(gathered, (3, 1000)): dist.all_gather_into_tensor(out, mine(n))
    with dist._coalescing_manager() as works:
        for out, n in zip(summed, (3, 1000)): dist.reduce_scatter_tensor(out, mine(size * n))
    for out, part, n in zip(gathered, summed, (3, 1000)):
        assert torch.equal(out, torch.cat([mine(n, of=i) for i in range(size)]))
        assert torch.equal(part, sum(mine(size * n, of=i) for i in range(size)).chunk(size)[rank])
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as works:
        for out in summed: dist.all_reduce(out)
    works.wait()
""",
    "sparse sums": """
def of(who):
    indices = torch.tensor([[i % 5 for i in range(who + 2)], [who] * (who + 2)])
    return torch.sparse_coo_tensor(indices, torch.arange(who + 2.0), (5, 4))
t = of(rank); dist.all_reduce(t)
assert torch.equal(t.to_dense(), sum(of(i).to_dense() for i in range(size)))
# torch calls another function of the backend for sparse tensors on a GPU.
if since(2, 1) and hasattr(torch.ops.c10d.allreduce_.default, "redispatch"):
    key, calls = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCUDA), []
    def as_on_a_gpu(*values):
        calls.append(1)
        return torch.ops.c10d.allreduce_.default.redispatch(key, *values)
    library = torch.library.Library("c10d", "IMPL")
    library.impl("allreduce_", as_on_a_gpu, "SparseCPU")
    t = of(rank); dist.all_reduce(t)
    assert calls and torch.equal(t.to_dense(), sum(of(i).to_dense() for i in range(size)))
    library._destroy()
""",
    "groups beside each other and other backends": """
pair = dist.new_group([1, 3]); rest = dist.new_group([0, 2], backend="gloo"); all_gloo = dist.new_group(backend="gloo")
if rank in (1, 3):
    t = torch.ones(3); dist.all_reduce(t, group=pair); assert (t == 2).all()
    t = torch.empty(2); dist.scatter(t, [torch.zeros(2), torch.ones(2)] if rank == 3 else None, src=3, group=pair)
    assert (t == (0 if rank == 1 else 1)).all()
else:
    t = torch.ones(3); dist.all_reduce(t, group=rest); assert (t == 2).all()
t = torch.ones(1); dist.all_reduce(t, group=all_gloo); assert t == size
if since(2, 2):
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    t = torch.tensor([float(rank)]); dist.all_reduce(t, group=mesh["inner"].get_group())
    assert t == (1 if rank < 2 else 5)
    assert dist.get_backend(mesh["inner"].get_group()) == "smddp"
    dist.barrier(device_ids=[0])
""",
    "tensors that share memory between elements are refused before the call": """
memory = torch.arange(9.0)
shared, words = memory[:1].expand(4), "of sizes [4] and strides [0] cannot receive a result"
whole, parts = torch.ones(16), [torch.ones(4) for _ in range(size)]
writes = {
    "smddp:broadcast": lambda: dist.broadcast(shared, 0),
    "smddp:all_reduce": lambda: dist.all_reduce(shared),
    "smddp:reduce": lambda: dist.reduce(shared, 0),
    "smddp:all_gather": lambda: dist.all_gather([shared] * size, parts[0]),
    "smddp:scatter": lambda: dist.scatter(shared, parts if rank == 0 else None, 0),
    "smddp:reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(shared, whole),
    "smddp:all_to_all": lambda: dist.all_to_all([shared] * size, parts),
    "smddp:recv": lambda: dist.recv(shared, (rank + 1) % size),
}
for name, write in writes.items():
    try:
        write()
    except ValueError as error:
        assert f"{name}: a tensor {words}" in str(error), error
    else:
        raise SystemExit("not refused: " + name)
assert torch.equal(memory, torch.arange(9.0))
gathered = [torch.empty(4) for _ in range(size)]
dist.all_gather(gathered, torch.tensor([float(rank)]).expand(4))  # to read it is no problem
assert all((t == i).all() for i, t in enumerate(gathered))
if rank == 0: dist.send(torch.tensor([7.0]).expand(4), 1)
if rank == 1: dist.recv(gathered[0], 0); assert (gathered[0] == 7).all()
dist.all_reduce(torch.empty(1, 0).expand(4, 0))
t = torch.ones(3, 1).expand(3, 1); dist.all_reduce(t); assert (t == size).all()
""",
    "sparse tensors that differ between ranks are refused on all of them": """
def sparse(*sizes, dtype=torch.float32, rows=1):
    indices = torch.zeros(rows, 1, dtype=torch.long)
    return torch.sparse_coo_tensor(indices, torch.ones(1, *sizes[rows:], dtype=dtype), sizes)
wide = torch.double
one_differs = {
    "Float of sizes [6], sparse in the first 1 on rank 2": lambda: sparse(6 if rank == 2 else 5),
    "Double of sizes [5], sparse in the first 1 on rank 2": lambda: sparse(5, dtype=wide if rank == 2 else torch.float),
    "Float of sizes [5, 2], sparse in the first 2 on rank 2": lambda: sparse(5, 2, rows=2 if rank == 2 else 1),
    "Float of sizes [5, 2], sparse in the first 1 on rank 2": lambda: sparse(5, 2) if rank == 2 else sparse(5),
}
for words, make in one_differs.items():
    try:
        dist.all_reduce(make())
    except RuntimeError as error:
        assert "Float of sizes [5" in str(error) and "on rank 0, " + words in str(error), error
    else:
        raise SystemExit("not refused: " + words)
t = sparse(5); dist.all_reduce(t); assert t.to_dense().tolist() == [4, 0, 0, 0, 0]
""",
    "calls that cannot be say why": """
def refused(call, words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise SystemExit("not refused: " + words)
refused(lambda: dist.all_to_all_single(torch.ones(5), torch.ones(5)), "5 rows, which cannot be split equally over 4")
refused(lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 1, 1, 2], [1] * 4), "split sizes of 5")
refused(lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(5)), "4 times its size")
def refused_value(call, words):
    def checked():
        try:
            call()
        except ValueError: raise
        except RuntimeError as error: raise SystemExit(f"no ValueError: {error!r}")
    refused(checked, words)
refused_value(lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND), "float32 has sum, avg, min, max, product")
yes = torch.ones(3, dtype=torch.bool)
refused_value(lambda: dist.all_reduce(yes, op=dist.ReduceOp.AVG), "bool has sum, min, max, product, band, bor, bxor")
refused(lambda: dist.all_reduce(torch.ones(3).long(), op=dist._make_nccl_premul_sum(0.5)), "floating-point")
for tag in (-3, 0x7fffffff):
    words = f"the tag of a message must be from 0 to 2147483645, got {tag}"
    refused(lambda: dist.isend(torch.ones(2), (rank + 1) % size, tag=tag), words)
    refused(lambda: dist.irecv(torch.ones(2), (rank + 1) % size, tag=tag), words)
    refused(lambda: dist.recv(torch.ones(2), tag=tag), words)
refused(lambda: dist.all_reduce(torch.ones(3).to_sparse(), op=dist.ReduceOp.MAX), "can only be summed")
t = torch.ones(2); dist.all_reduce(t); assert (t == 4).all()
""",
}


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    script = INIT + ranks.in_turn(CASES)
    return ranks.start([2, 2], script + "dist.destroy_process_group()\n").finish()


@pytest.mark.parametrize("name", CASES)
def test_torch_distributed(name: str, outcomes: List[ranks.Outcome]) -> None:
    for outcome in outcomes:
        assert f"passed {name}\n" in outcome.out, f"rank {outcome.rank}:\n{outcome.err}"


def test_monitored_barrier_names_the_missing_rank() -> None:
    outcomes = ranks.run(
        [2, 2],
        """
dist.init_process_group("smddp")
from datetime import timedelta
dist.monitored_barrier()
late = dist.new_group(timeout=timedelta(seconds=30))
try:
    if rank not in (1, 2): dist.monitored_barrier(late, timeout=timedelta(seconds=1), wait_all_ranks=True)
    print("passed", flush=True)
except RuntimeError as error:
    print(error, flush=True)
dist.barrier()
dist.destroy_process_group()
""",
    )
    assert "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in outcomes[0].out
    assert "Rank 3 successfully reached monitoredBarrier" in outcomes[3].out
    assert "passed" in outcomes[1].out and "passed" in outcomes[2].out
