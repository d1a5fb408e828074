"""all_reduce that sums within the host first, in a process group of its ranks, on tensors of the CPU.

The group's backend is ``smddp``, which adds in the order of local ranks, or Gloo, which has its own order.
"""

import importlib.util
import re
import textwrap
from typing import List, Sequence

import pytest
import ranks

from smdp_engine._local_reducer import nccl_refusal

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

SHAPES = {"2x4": [4, 4], "3+1": [3, 1], "4x2": [2, 2, 2, 2]}

COMMON = """
import itertools, pickle, tempfile
hosts = {hosts}
starts = [0, *itertools.accumulate(hosts)]
by_host = [list(range(begin, begin + count)) for begin, count in zip(starts, hosts)]
host = next(index for index, mates in enumerate(by_host) if rank in mates)

def values(count, dtype, of):
    generator = torch.Generator().manual_seed(1000 * of + count)
    if not dtype.is_floating_point:
        return torch.randint(-99, 99, (count,), generator=generator, dtype=dtype)
    # Sums in another order have other bits.
    return (torch.randn(count, generator=generator) * torch.rand(count, generator=generator) * 100).to(dtype)

def wide(t):
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t

ADDED = {{"sum": torch.add, "max": torch.maximum, "min": torch.minimum, "product": torch.mul}}
# In order, in fp32 (float64 in itself), rounded once.
def added(tensors, op):
    result = wide(tensors[0]).clone()
    for t in tensors[1:]:
        result = ADDED[op](result, wide(t))
    return result.to(tensors[0].dtype)

OPS = {{"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}}

# The groups of the engine that have made calls on this rank.
def groups_with_calls():
    import smdp_engine.torch_backend
    path = smdp_engine.torch_backend.adapter().dump(tempfile.mkdtemp())
    return {{entry["process_group"][1] for entry in pickle.load(open(path, "rb"))["entries"]}}
dist.init_process_group("smddp")
"""


def run(hosts: Sequence[int], reducer: str, body: str) -> List[ranks.Outcome]:
    script = COMMON.format(hosts=list(hosts)) + textwrap.dedent(body) + "\ndist.destroy_process_group()\n"
    outcomes = ranks.start(hosts, script, env={"SMDP_LOCAL_REDUCER": reducer}).finish(timeout=280)
    for outcome in outcomes:
        assert outcome.code == 0, f"rank {outcome.rank}:\n{outcome.out}\n{outcome.err}"
    return outcomes


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_have_the_bits_of_local_ranks_then_hosts_in_order(shape: str) -> None:
    outcomes = run(
        SHAPES[shape],
        "smddp",
        """
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
            for count in (65536, 100_001):
                for op in OPS if dtype == torch.float32 else ("sum",):
                    t = values(count, dtype, rank)
                    dist.all_reduce(t, op=OPS[op])
                    sums = [added([values(count, dtype, mate) for mate in mates], op) for mates in by_host]
                    assert torch.equal(torch.nan_to_num(t), torch.nan_to_num(added(sums, op))), (dtype, count, op)
        grid = values(90_000, torch.float32, rank).view(300, 300).t()
        dist.all_reduce(grid)
        sums = [added([values(90_000, torch.float32, mate) for mate in mates], "sum") for mates in by_host]
        assert torch.equal(grid, added(sums, "sum").view(300, 300).t())
        assert any(":segment" in name for name in groups_with_calls()), groups_with_calls()
        """,
    )
    assert len(outcomes) == sum(SHAPES[shape])


@pytest.mark.runs
@pytest.mark.parametrize("shape", SHAPES)
def test_gloo_sums_within_the_host_and_the_engine_adds_the_hosts_in_order(shape: str) -> None:
    run(
        SHAPES[shape],
        "gloo",
        """
        mates_group = [dist.new_group(mates, backend="gloo") for mates in by_host][host]
        for dtype in (torch.float32, torch.float64):
            for count in (66_000, 1_200_000):  # a whole number for each rank
                mates = by_host[host]
                mine = torch.empty(count // len(mates), dtype=dtype)
                dist.reduce_scatter_tensor(mine, values(count, dtype, rank), group=mates_group)
                of_host = torch.empty(count, dtype=dtype)
                dist.all_gather_into_tensor(of_host, mine, group=mates_group)
                sums = [torch.empty(count, dtype=dtype) for _ in range(size)]
                dist.all_gather(sums, of_host)
                want = added([sums[mates[0]] for mates in by_host], "sum")
                for _ in range(2):
                    t = values(count, dtype, rank)
                    dist.all_reduce(t)
                    assert torch.equal(t, want), (dtype, count)
        """,
    )


@pytest.mark.runs
@pytest.mark.parametrize("hosts", [[3, 2], [2, 1, 3], [4]], ids=["3+2", "2+1+3", "one host"])
def test_uneven_hosts_and_a_single_host(hosts: List[int]) -> None:
    run(
        hosts,
        "smddp",
        """
        for count in (70_000, 1_000_003):
            t = values(count, torch.float32, rank)
            dist.all_reduce(t)
            sums = [added([values(count, torch.float32, mate) for mate in mates], "sum") for mates in by_host]
            assert torch.equal(t, added(sums, "sum")), count
        """,
    )


@pytest.mark.runs
def test_other_calls_use_shared_memory_and_may_come_between() -> None:
    run(
        [2, 2],
        "smddp",
        """
        t = torch.full((100_000,), float(rank)); dist.all_reduce(t, op=dist.ReduceOp.AVG); assert (t == 1.5).all()
        t = torch.ones(100); dist.all_reduce(t); assert (t == 4).all()
        t = torch.ones(100_000, dtype=torch.bool); dist.all_reduce(t); assert t.all()
        assert not any(":segment" in name for name in groups_with_calls())
        works = []
        for i in range(30):
            t = torch.full((20_000 * (1 + i % 3),), float(rank + i))
            works.append((t, i, dist.all_reduce(t, async_op=True)))
            small = torch.full((10,), float(i)); works.append((small, None, dist.all_reduce(small, async_op=True)))
        for t, i, work in reversed(works):
            work.wait()
            assert i is None or (t == 6 + 4 * i).all(), i
        sub = dist.new_group([1, 2, 3])
        t = torch.full((100_000,), float(rank))
        if rank: dist.all_reduce(t, group=sub); assert (t == 6).all()
        futures = [dist.all_reduce(torch.full((50_000,), float(i)), async_op=True).get_future() for i in range(5)]
        futures = [one.then(lambda done: done.value()[0] * 2) for one in futures]
        assert all((one.wait() == 8 * i).all() for i, one in enumerate(futures))
        """,
    )


TRAINING = """
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.ReLU(), torch.nn.Linear(300, 50))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(4):
    torch.manual_seed(100 * step + rank)
    loss = ddp(torch.randn(8, 200)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
import hashlib
weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().tobytes()
print("digest", hashlib.sha256(weights).hexdigest())
"""


@pytest.mark.runs
def test_ddp_trains_to_the_bits_of_shared_memory() -> None:
    digests = {outcome.out for reducer in ("shm", "smddp") for outcome in run([2, 2], reducer, TRAINING)}
    assert len(digests) == 1, digests


@pytest.mark.runs
def test_rank_that_ends_fails_the_call_of_all_ranks() -> None:
    started = ranks.start(
        [2, 2],
        """
        dist.init_process_group("smddp")
        t = torch.ones(100_000)
        dist.all_reduce(t)
        meet("all have summed")
        if rank == 1: os._exit(3)
        for attempt in range(2):
            try:
                dist.all_reduce(t)
                raise AssertionError("it ended")
            except RuntimeError as error:
                assert "smddp" in str(error), error
        print("failed twice", flush=True)
        os._exit(0)
        """,
        env={"SMDP_LOCAL_REDUCER": "smddp"},
    )
    for outcome in started.finish():
        assert outcome.rank == 1 or "failed twice" in outcome.out, outcome.err


def test_exit_of_a_rank_is_reported_as_the_cause_on_every_host() -> None:
    outcomes = ranks.start(
        [2, 2],
        """
        dist.init_process_group("smddp")
        t = torch.ones(100_000)
        dist.all_reduce(t)
        meet("all have summed")
        if rank == 3: sys.exit(0)
        try:
            dist.all_reduce(t)
        except dist.DistBackendError as error:
            print("raised", error, flush=True)
        """,
        env={"SMDP_LOCAL_REDUCER": "gloo"},
    ).finish()
    assert [outcome.code for outcome in outcomes] == [0] * 4, outcomes
    for outcome in outcomes[:3]:
        assert "rank 3 (host algo-2) ended or closed its engine before operation" in outcome.out, outcome
        assert "SMDP_LOCAL_REDUCER" not in outcome.out and outcome.out.count("smddp: ") == 1, outcome


def test_error_of_the_local_reducer_names_rank_host_and_setting() -> None:
    outcomes = ranks.run(
        [2, 2],
        """
        gloo = dist.ProcessGroupGloo
        if rank >= 2:  # a group of one rank refuses tensors that are divided for two
            dist.ProcessGroupGloo = lambda store, rank, size, limit: gloo(dist.HashStore(), 0, 1, limit)
        dist.init_process_group("smddp")
        try:
            dist.all_reduce(torch.ones(100_000))
        except dist.DistBackendError as error:
            print("raised", error, flush=True)
        """,
        env={"SMDP_LOCAL_REDUCER": "gloo"},
    )
    for outcome in outcomes:
        words = r"SMDP_LOCAL_REDUCER=gloo failed on rank [23] \(host algo-2; shm works without it\): "
        assert re.search(words, outcome.out) and outcome.out.count("smddp: ") == 1, outcome


@pytest.mark.runs
def test_destroying_the_group_ends_its_calls() -> None:
    outcomes = ranks.run(
        [2, 2],
        """
        dist.init_process_group("smddp")
        group = dist.new_group()
        if rank == 0:
            work = dist.all_reduce(torch.ones(100_000), group=group, async_op=True)  # no other rank makes it
            dist.destroy_process_group(group)
            try:
                work.wait()
                raise AssertionError("it ended")
            except RuntimeError as error:
                assert "smddp" in str(error), error
        t = torch.ones(100_000); dist.all_reduce(t); assert (t == 4).all()
        dist.destroy_process_group()
        """,
        env={"SMDP_LOCAL_REDUCER": "smddp"},
    )
    assert len(outcomes) == 4


@pytest.mark.runs
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SMDP_LOCAL_REDUCER": "mpi"}, "SMDP_LOCAL_REDUCER='mpi': one of shm, nccl, gloo, smddp"),
        ({"SMDP_LOCAL_REDUCER": "nccl", "CUDA_VISIBLE_DEVICES": ""}, "SMDP_LOCAL_REDUCER=nccl: this"),
    ],
    ids=["unknown", "nccl without a GPU"],
)
def test_impossible_reducer_is_refused(env: "dict[str, str]", words: str) -> None:
    started = ranks.start([2], 'dist.init_process_group("smddp")', env=env)
    for outcome in started.finish():
        assert outcome.code == 1 and words in outcome.err, outcome.err


# NCCL needs GPUs. With emulated CUDA all of its conditions hold; Gloo stands in for its process groups.
EMULATED_NCCL = """
from smdp_engine import cuda_on_cpu
cuda_on_cpu.install()
class ProcessGroupNCCL:
    class Options: pass
    made = 0
    def __new__(cls, store, rank, size, options):
        cls.made += 1
        return dist.ProcessGroupGloo(store, rank, size, options._timeout)
dist.ProcessGroupNCCL = ProcessGroupNCCL
"""


@pytest.mark.runs
def test_second_group_with_nccl_sums_in_shared_memory_and_says_so() -> None:
    outcomes = ranks.run(
        [3, 2],
        EMULATED_NCCL
        + """
def summed(group=None):
    t = torch.ones(100_000)
    dist.all_reduce(t, group=group)
    return int(t.unique())

for turn in (1, 2):  # after it was destroyed, the default group may be made again
    dist.init_process_group("smddp")
    assert (summed(), ProcessGroupNCCL.made) == (5, 2 * turn)
    for members in (range(5), [0, 1, 3], [0, 3]):  # rank 3 is alone on its host; one rank for each host
        group = dist.new_group(members)
        assert rank not in members or summed(group) == len(members)
    assert (summed(), ProcessGroupNCCL.made) == (5, 2 * turn)
    dist.destroy_process_group()
print("all summed", flush=True)
""",
        env={"SMDP_LOCAL_REDUCER": "nccl", "LOCAL_WORLD_SIZE": "3"},
    )
    assert ["all summed" in outcome.out for outcome in outcomes] == [True] * 5
    lines = [outcome.err.count("sums in shared memory and not with NCCL") for outcome in outcomes]
    assert lines == [4, 0, 0, 0, 0]  # twice for each turn: not for the group with one rank for each host


@pytest.mark.runs
def test_different_reducers_are_refused_and_each_rank_names_its_own() -> None:
    env_of = {1: {"SMDP_LOCAL_REDUCER": "gloo"}}
    started = ranks.start([2], 'dist.init_process_group("smddp")', env_of=env_of)
    for outcome in started.finish():
        assert outcome.code == 1 and "options differ between rank 0 and rank 1" in outcome.err, outcome.err
        assert f"SMDP_LOCAL_REDUCER={'gloo' if outcome.rank == 1 else 'shm'}" in outcome.err, outcome.err


@pytest.mark.parametrize(
    ("is_built", "devices", "reason"),
    [
        (True, ["NVIDIA A100-SXM4-40GB"], None),
        (False, [], "this build of torch has no NCCL"),
        (True, [], "this process sees no GPU"),
        (True, ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"], "NCCL does not connect the parts of a divided GPU"),
    ],
)
def test_nccl_is_refused_where_it_cannot_work(is_built: bool, devices: List[str], reason: "str | None") -> None:
    refusal = nccl_refusal(is_built=is_built, devices=devices)
    assert refusal is None if reason is None else str(refusal).startswith(reason)
