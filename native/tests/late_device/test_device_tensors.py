"""Tensors on a device that delays its operations: a missing wait gives wrong values."""

from typing import List

import device_cases
import late_job
import pytest
import ranks

pytestmark = [pytest.mark.torch, late_job.needs_torch]

CASES = {**device_cases.CASES, **device_cases.HELD}


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    return late_job.run([2, 2], CASES)


@pytest.mark.runs
@pytest.mark.parametrize("name", CASES)
def test_device_tensors(name: str, outcomes: List[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)


def test_unknown_device_is_refused_and_the_group_continues() -> None:
    outcomes = ranks.run(
        [1, 1],
        """
        dist.init_process_group("smddp")
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        claims = FakeTensor(FakeTensorMode(), torch.empty(3, device="meta"), torch.device("cuda:99"))
        try:
            dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([claims]).wait()
            raise AssertionError("it was accepted")
        except RuntimeError as error:
            assert "cuda:99, where nothing can be copied from" in str(error), error
        t = torch.ones(3); dist.all_reduce(t); assert (t == 2).all()
        dist.destroy_process_group()
        """,
    )
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
