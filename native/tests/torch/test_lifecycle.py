"""Groups that are destroyed, created again, or left by one rank; the errors on the other ranks."""

import os
import re
from typing import List

import pytest
import ranks

pytestmark = pytest.mark.torch

LEAVES = """
dist.init_process_group("smddp")
store = dist.distributed_c10d._get_default_store()
group = dist.new_group([0, 1, 2])
dist.all_reduce(torch.ones(5), group=group)
meet("ready")
if rank == 0:
    pending = %s
    dist.destroy_process_group(group)
    if pending:
        try:
            pending.wait()
        except dist.DistBackendError as error:
            print("own", error, flush=True)
    store.set("destroyed", "")  # before the group is destroyed, which happens when the function returns
else:
    store.wait(["destroyed"])
    try:
        dist.all_reduce(torch.ones(300000), group=group)
    except dist.DistBackendError as error:
        print("raised", error, flush=True)
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == 3
"""


@pytest.mark.parametrize("pending", ["dist.all_reduce(torch.ones(300000), group=group, async_op=True)", "None"])
@pytest.mark.parametrize("hosts", [[3], [1, 2]])
def test_call_on_a_destroyed_group_names_the_rank_that_destroyed_it(hosts: List[int], pending: str) -> None:
    outcomes = ranks.start(hosts, LEAVES % pending).finish()
    assert all(outcome.code == 0 for outcome in outcomes), outcomes
    assert pending == "None" or "the group was destroyed" in outcomes[0].out, outcomes[0]
    for outcome in outcomes[1:]:
        assert re.search(
            r"raised.* rank 0 \(host algo-1\) destroyed the group before operation 1 of group '\w+'", outcome.out
        )


AGAIN = """
import faulthandler
faulthandler.dump_traceback_later(110, exit=True)
for number in range(12):
    dist.init_process_group("smddp")
    works = [dist.all_reduce(torch.ones(500000), async_op=True) for _ in range(5)]
    for work in works: work.wait()
    dist.destroy_process_group()
    del works
print("all rounds", flush=True)
"""


@pytest.mark.parametrize("hosts", [[2], [1, 2]])
def test_job_can_recreate_its_group_at_the_same_port(hosts: List[int]) -> None:
    for outcome in ranks.start(hosts, AGAIN).finish(120):
        assert outcome.code == 0 and "all rounds" in outcome.out, outcome


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_jobs_can_recreate_their_groups() -> None:
    rounds = int(os.environ.get("SMDP_AGAIN_ROUNDS", "20"))
    for _ in range(rounds):
        for outcome in ranks.start([2], AGAIN).finish(120):
            assert outcome.code == 0 and "all rounds" in outcome.out, outcome
    print(f"{rounds} jobs began 12 times each")


RAISES = """
dist.init_process_group("smddp")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
meet("ready")
if rank == 1:
    pending = dist.all_reduce(torch.ones(3), async_op=True)
    raise ValueError("a bug of the script")
try:
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(3))
except dist.DistBackendError as error:
    print("raised", error, flush=True)
"""


def _lose_rank_1() -> None:
    outcomes = ranks.start([2, 1], RAISES).finish()
    assert [outcome.code for outcome in outcomes] == [0, 1, 0], outcomes
    for outcome in (outcomes[0], outcomes[2]):
        assert "rank 1 (host algo-1) was lost" in outcome.out, outcome


def test_rank_that_raises_is_reported_lost() -> None:
    _lose_rank_1()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_ranks_that_raise_are_reported_lost() -> None:
    for _ in range(20):
        _lose_rank_1()
    print("20 ranks were lost and reported")
