"""all_reduce that sums within the host first, on the late device."""

from typing import Dict, List

import device_cases
import late_job
import pytest
import ranks
import waits

pytestmark = [pytest.mark.torch, pytest.mark.runs, late_job.needs_torch]

CASES: Dict[str, str] = {
    **waits.LOCAL_FIRST_CASES,
    **{
        name: device_cases.CASES[name]
        for name in ("calls for host and device keep their order", "models train as on the host")
    },
    "a graph that records is refused": """
t = slowly(mine(LARGE))
late_device.capture(True)
try:
    dist.all_reduce(t)
    raise AssertionError("it was accepted")
except RuntimeError as error:
    assert "a graph cannot record this call" in str(error), error
finally:
    late_device.capture(False)
dist.all_reduce(t); assert same(t, summed(LARGE))
""",
    "out of memory on the device in the middle of a bucket": """
group = dist.new_group()
t = slowly(mine(LARGE)); t.cpu()
late_device.limit_allocations(0)
for _ in range(2):
    try:
        dist.all_reduce(t, group=group)
        raise AssertionError("it ended")
    except RuntimeError as error:
        assert "the device is out of memory" in str(error), error
late_device.limit_allocations(-1)
""",
}


@pytest.fixture(scope="module", params=[[2, 2], [3, 1]], ids=["2x2", "3+1"])
def outcomes(request: pytest.FixtureRequest) -> List[ranks.Outcome]:
    return late_job.run(request.param, CASES, env={"SMDP_LOCAL_REDUCER": "smddp"})


@pytest.mark.parametrize("name", CASES)
def test_local_first_on_a_device(name: str, outcomes: List[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)
