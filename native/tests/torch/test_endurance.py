"""Long runs of mixed collectives: all results are right, and no resource use grows with their number."""

from typing import List

import pytest
import ranks

pytestmark = pytest.mark.torch

# Every rank generates the same calls from the same seed. Values are whole numbers small enough to be exact in each
# type, so the right result does not depend on the order of additions.
MIXED = """
import gc, random, statistics

iterations, seed, flights = int(os.environ["ITERATIONS"]), int(os.environ["SEED"]), 4
dist.init_process_group("smddp")
draw = random.Random(seed)
groups = [(list(range(size)), dist.group.WORLD)]
while len(groups) < 8:
    members = sorted(draw.sample(range(size), draw.randint(2, size)))
    groups.append((members, dist.new_group(members)))

def values(of, turn, count, dtype):
    return (torch.arange(count) % 23 + of + turn % 7).to(dtype)

def reduced(members, turn, count, dtype, op):
    all_values = torch.stack([values(of, turn, count, torch.float64) for of in members])
    return (all_values.sum(0) if op == dist.ReduceOp.SUM else all_values.amax(0)).to(dtype)

def begin(turn):
    members, group = draw.choice(groups)
    kind = draw.choice(["all_reduce", "all_reduce", "broadcast", "reduce", "all_gather", "barrier"])
    dtype = draw.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64])
    op, root = draw.choice([dist.ReduceOp.SUM, dist.ReduceOp.MAX]), draw.choice(members)
    count = int(2 ** draw.uniform(0, 18)) if draw.random() < 0.95 else draw.choice([0, 1_600_000])
    if rank not in members:
        return None
    mine = values(rank, turn, count, dtype)
    if kind == "all_reduce":
        return dist.all_reduce(mine, op, group=group, async_op=True), [mine], [reduced(members, turn, count, dtype, op)]
    if kind == "broadcast":
        return dist.broadcast(mine, root, group=group, async_op=True), [mine], [values(root, turn, count, dtype)]
    if kind == "reduce":
        work = dist.reduce(mine, root, op, group=group, async_op=True)
        return work, [mine] if rank == root else [], [reduced(members, turn, count, dtype, op)]
    if kind == "all_gather":
        outputs = [torch.empty_like(mine) for _ in members]
        work = dist.all_gather(outputs, mine, group=group, async_op=True)
        return work, outputs, [values(of, turn, count, dtype) for of in members]
    return dist.barrier(group=group, async_op=True), [], []

def pss_kib():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))

def descriptors():
    return len(os.listdir("/proc/self/fd"))

under_way, samples, held = [], [], None
for turn in range(iterations):
    under_way.append(begin(turn))
    if len(under_way) == flights or turn == iterations - 1:
        for call in under_way:
            if call is None: continue
            work, results, expected = call
            work.wait()
            for got, want in zip(results, expected):
                assert torch.equal(got, want), (turn, got.dtype, got.numel())
        under_way = []
    if turn == iterations // 2:
        dist.barrier(); held = descriptors()
    if turn > iterations // 10 and turn % (iterations // 40) == 0:
        gc.collect(); samples.append((turn / 1000, pss_kib() / 1024))
dist.barrier()
assert descriptors() == held, (descriptors(), held)
# The program's thread, the engine's threads, one for each concurrent completion of a future, and a spare one.
assert len(os.listdir("/proc/self/task")) <= 3 + flights
slope = statistics.linear_regression(*zip(*samples)).slope
print(f"rank {rank}: {iterations} iterations, {samples[-1][1]:.0f} MiB, {slope:+.3f} MiB per 1,000", flush=True)
assert iterations < 10_000 or slope <= 1, slope
dist.barrier()
dist.destroy_process_group()
"""


def _mixed(hosts: List[int], iterations: int, seed: int) -> None:
    # Freed memory is returned to the system at once, so the measured memory is the memory in use.
    env = {"ITERATIONS": str(iterations), "SEED": str(seed), "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
    job = ranks.start(hosts, MIXED, env=env)
    outcomes = job.finish(500 + iterations / 10)  # many times what it takes on a machine that runs nothing else
    errors = "\n".join(f"rank {outcome.rank}:\n{outcome.err}" for outcome in outcomes if outcome.code != 0)
    assert not errors, f"seed {seed}\n{errors}"
    print(*(outcome.out for outcome in outcomes), sep="", end="")


@pytest.mark.runs
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hosts", [pytest.param([4], marks=pytest.mark.soak), [2, 2]])
def test_mixed_collectives_over_eight_groups_are_right(hosts: List[int]) -> None:
    _mixed(hosts, 400, 11)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hosts", [[4], [2, 2], [3, 1]])
def test_memory_is_constant_over_ten_thousand_mixed_collectives(hosts: List[int]) -> None:
    _mixed(hosts, 10_000, 12)
