"""A device that fails, and a script that uses it in unusual ways: each call ends, with a result or with the reason."""

import os
import signal
from typing import Dict, List

import device_cases
import late_job
import pytest
import ranks

pytestmark = [pytest.mark.torch, pytest.mark.runs, late_job.needs_torch]

FAILED = """
def failed(call, *words):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)
"""

CASES = {
    "out of memory before a call begins: the call is not made and may be repeated": """
grid = slowly(mine(3000).view(3, 1000)).t()
late_device.limit_allocations(0)  # the contiguous copy of the tensor
try: failed(lambda: dist.all_reduce(grid), "the device is out of memory")
finally: late_device.limit_allocations(-1)
dist.all_reduce(grid); assert same(grid, summed(3000).view(3, 1000).t())
ts = [slowly(mine(count)) for count in (10, 20)]
late_device.limit_allocations(0)  # the memory that they are packed in
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try: failed(lambda: dist.all_reduce_coalesced(ts), "the device is out of memory")
    finally: late_device.limit_allocations(-1)
    dist.all_reduce_coalesced(ts)
assert all(same(t, summed(t.numel())) for t in ts)
""",
    "a device that fails in the copies to the host": """
group = dist.new_group()
t = slowly(mine(LARGE)); t.cpu()
late_device.fail_copies(True)
try: failed(lambda: dist.all_reduce(t, group=group), "the device failed in a copy")
finally: late_device.fail_copies(False)
failed(lambda: dist.all_reduce(torch.ones(3), group=group), "the device failed in a copy")
dist.all_reduce(t); assert same(t, summed(LARGE))
""",
    "a device that fails in the copies back": """
group = dist.new_group()
out = empty(SMALL); out.cpu()
source = slowly(mine(SMALL, of=0)); source.cpu()
if rank == 0:
    dist.broadcast(source, 0, group=group)
else:
    late_device.fail_copies(True)
    try: failed(lambda: dist.broadcast(out, 0, group=group), "the device failed in a copy")
    finally: late_device.fail_copies(False)
meet("the copies back failed")
""",
    "a stream that is destroyed while its call runs": """
t, out = slowly(mine(LARGE)), empty(SMALL)
t.cpu(); out.cpu()
late_device.use_stream(9)
work = dist.all_reduce(t, async_op=True)
future = dist.broadcast(out, 0, async_op=True).get_future()
late_device.use_stream(0)
late_device.synchronize_stream(9)
late_device.destroy_stream(9)
work.wait(); future.wait()
late_device.destroy_stream(-1)
assert same(t, summed(LARGE)) and same(out, torch.full((SMALL,), 55.0))
""",
    "two groups on one device": """
import threading
groups = [dist.new_group() for _ in range(2)]
failures = []
def calls(group, offset):
    try:
        for i in range(10):
            t = slowly(torch.full((300_000,), float(rank + i + offset)))
            dist.all_reduce(t, group=group)
            assert (t.cpu() == sum(range(size)) + size * (i + offset)).all(), (i, offset)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=calls, args=(group, 100 * i)) for i, group in enumerate(groups)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
""",
    "a graph that records is refused, and the call may be made after it": """
t = slowly(mine(SMALL))
late_device.capture(True)
failed(lambda: dist.all_reduce(t), "a graph cannot record this call", "outside of the captured region")
late_device.capture(False)
dist.all_reduce(t); assert same(t, summed(SMALL))
""",
}


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    return late_job.run([2, 2], {name: FAILED + body for name, body in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_fault(name: str, outcomes: List[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)


def test_operations_that_block_until_they_are_complete() -> None:
    """As with CUDA_LAUNCH_BLOCKING=1."""
    names = ("sums", "copies", "calls for host and device keep their order", "callbacks see the results")
    cases = {name: device_cases.CASES[name] for name in names}
    outcomes = late_job.run([2, 2], cases, env={"LATE_DEVICE_BLOCKING": "1"})
    for name in cases:
        device_cases.passed(name, outcomes)


@pytest.mark.parametrize("reducer", ["shm", "smddp"])
def test_process_killed_with_copies_in_flight_is_reported_to_the_other_ranks(reducer: str) -> None:
    cases = {
        "": FAILED
        + """
t = slowly(mine(LARGE)); t.cpu()
if rank == 1: late_device.hold(True)
work = dist.all_reduce(t, async_op=True)
print("pid", os.getpid(), flush=True)
if rank == 1: time.sleep(300)
failed(work.wait, "rank 1", "lost")
print("reported", flush=True)
os._exit(0)
"""
    }
    env: Dict[str, str] = {"PYTHONPATH": late_job.path(), "SMDP_LOCAL_REDUCER": reducer}
    started = ranks.start([2, 2], late_job.script(cases), env=env)
    started.wait_for(r"pid \d+")
    os.kill(started.number_after("pid", 1), signal.SIGKILL)
    for outcome in started.finish():
        assert outcome.rank == 1 or "reported" in outcome.out, outcome.err
