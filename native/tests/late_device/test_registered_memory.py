"""Copies between a device and the engine's shared memory, which is registered with it."""

from typing import Dict, List

import device_cases
import late_job
import pytest
import ranks
import waits
from registered_memory_cases import CASES, SMALL_MEMORY

pytestmark = [pytest.mark.torch, pytest.mark.runs, late_job.needs_torch]


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    return late_job.run([2, 2], CASES)


@pytest.mark.parametrize("name", CASES)
def test_registered_memory(name: str, outcomes: List[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)


def test_destroying_the_group_undoes_the_registration() -> None:
    end = "dist.destroy_process_group(); assert late_device.registered() == 0, late_device.registered()\n"
    end += "print('undone', flush=True)\n"
    call = {"a call": "dist.all_reduce(t := slowly(mine(LARGE))); assert same(t, summed(LARGE))"}
    for outcome in late_job.run([2], call, end=end):
        assert "undone" in outcome.out and outcome.code == 0, outcome.err


def test_memory_stays_registered_while_a_copy_uses_it() -> None:
    for outcome in late_job.run([2], waits.HELD_CASES, end=waits.HELD_AT_THE_END):
        assert "ended" in outcome.out and outcome.code == 0, outcome.err


def test_memory_stays_registered_while_a_copy_to_the_host_is_queued() -> None:
    case = {
        "a copy to the host": """
t = slowly(mine(SMALL))
t.cpu()
late_device.hold(True)
work = dist.all_reduce(t, async_op=True)
time.sleep(0.2)
"""
    }
    end = """
dist.destroy_process_group()
assert late_device.registered() > 0
late_device.hold(False)
print("ended", flush=True)
"""
    for outcome in late_job.run([2], case, end=end):
        assert "ended" in outcome.out and outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("hosts", "env", "line"),
    [
        ([2, 2], {"SMDP_REGISTERED_MIB": "0"}, ""),
        ([2, 2], {"SMDP_REGISTERED_MIB": "4", "SMDP_ARENA_MIB": "16"}, ""),
        ([3, 1], {"LATE_DEVICE_REFUSES": "1"}, "lateHostRegister: too much memory is registered"),
    ],
    ids=["off", "small", "refused"],
)
def test_without_enough_registered_memory_pinned_memory_serves(
    hosts: List[int], env: Dict[str, str], line: str
) -> None:
    cases = {
        "refusal": "late_device.refuse_to_register(os.environ.get('LATE_DEVICE_REFUSES') == '1')",
        SMALL_MEMORY: CASES[SMALL_MEMORY],
        **{name: device_cases.CASES[name] for name in ("sums", "released memory is not reused too early")},
    }
    outcomes = late_job.run(hosts, cases, env=env)
    for name in cases:
        device_cases.passed(name, outcomes)
    for outcome in outcomes:
        text = f"smdp: rank {outcome.rank}: the engine's shared memory is not registered with the device ({line})"
        assert outcome.err.count(text) == (1 if line else 0), outcome.err
        assert line or "not registered" not in outcome.err, outcome.err
