"""Groups that are destroyed, created again, or left by one rank; the errors on the other ranks."""

import os
import re
from pathlib import Path
from typing import Dict, List

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
        assert "the group was destroyed" in str(pending.exception()), pending.exception()
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


LEFT = """
import socket
def held(): return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
for number in range(6):
    dist.init_process_group("smddp")
    dist.all_reduce(torch.ones(100_000))
    dist.destroy_process_group()
    if number == 1: most = tuple(count + 2 for count in held())  # what a process has once, and a group that is ending
for _ in range(3000):
    if all(now <= before for now, before in zip(held(), most)): break
    time.sleep(0.01)
else:
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in paths if os.path.lexists(path)]
    raise SystemExit(f"{held()} descriptors and threads, at first {most}: {links}")
"""


@pytest.mark.parametrize("reducer", ["shm", pytest.param("gloo", marks=pytest.mark.runs)])
def test_destroyed_groups_leave_no_descriptors_and_threads(reducer: str) -> None:
    ranks.run([2], LEFT, env={"SMDP_LOCAL_REDUCER": reducer})


SERVED = """
import socket
dist.init_process_group("smddp")
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
if rank > 0:
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60).close()
        print("the old store answers", flush=True)
    except ConnectionRefusedError:
        print("the old store is gone", flush=True)
    open(f"{os.environ['LOOKED']}.{rank}", "x").close()
while rank == 0 and not all(os.path.exists(f"{os.environ['LOOKED']}.{other}") for other in range(1, size)):
    time.sleep(0.01)
"""


def test_other_ranks_wait_until_the_store_of_rank_0_is_gone(tmp_path: Path) -> None:
    for outcome in ranks.run([2, 1], SERVED, env={"LOOKED": str(tmp_path / "looked")})[1:]:
        assert "the old store is gone" in outcome.out, outcome


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


@pytest.mark.parametrize("ending", ["sys.exit(3)", "sys.exit(0)"])
def test_rank_that_exits_without_an_exception_is_reported_ended(ending: str) -> None:
    outcomes = ranks.start([2, 1], RAISES.replace('raise ValueError("a bug of the script")', ending)).finish()
    assert [outcome.code for outcome in outcomes] == [0, int(ending[-2]), 0], outcomes
    for outcome in (outcomes[0], outcomes[2]):
        assert "rank 1 (host algo-1) ended or closed its engine before operation" in outcome.out, outcome


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


OTHER_DEFAULT = """
dist.init_process_group("gloo")
def summed(group):
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    return x.item()

# Ranks 0 and 3 are in no group between the first two and the last two.
for members in ([0, 1], [2, 3], [1, 2], [0, 1], [2, 3]):
    group = dist.new_group(members, backend="smddp")
    assert rank not in members or summed(group) == 2
every = dist.new_group(backend="smddp")
some = dist.new_group([0, 2], backend="smddp")
dist.destroy_process_group(every)
again = dist.new_group(backend="smddp")
assert summed(again) == 4 and (rank % 2 or summed(some) == 2)
dist.barrier()  # a rank that ends closes connections that Gloo still uses on another
"""


@pytest.mark.parametrize("checks", ["OFF", "DETAIL"])
def test_groups_of_a_job_with_another_default_backend_may_overlap(checks: str) -> None:
    ranks.run([2, 2], OTHER_DEFAULT, env={"TORCH_DISTRIBUTED_DEBUG": checks})


LATE = """
from datetime import timedelta
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = dist.TCPStore(address, port, size, rank == 0, wait_for_workers=False)
if rank == 0:
    try:
        dist.init_process_group("smddp", store=store, rank=0, world_size=2, timeout=timedelta(seconds=2))
    except dist.DistBackendError as error:
        print("raised", error, flush=True)
    store.set("failed", "")
store.wait(["failed"], timedelta(seconds=600))
store.add("left", 1)
while rank == 0 and store.add("left", 0) < 2: time.sleep(0.01)
"""


@pytest.mark.parametrize(("option", "limit"), [({}, "2"), ({"SMDP_RENDEZVOUS_TIMEOUT_S": "1.5"}, "1.5")])
def test_ranks_wait_at_the_start_for_the_timeout_of_the_group(option: Dict[str, str], limit: str) -> None:
    out = ranks.run([1, 1], LATE, env=option)[0].out
    expected = f"the ranks waited {limit} s for each other (SMDP_RENDEZVOUS_TIMEOUT_S): rendezvous failed: rank 1"
    assert expected in out, out
