"""Tensors on a device, on one that does late what it is told: whoever does not wait in the right place is found out."""

from pathlib import Path
from typing import List

import device_cases
import pytest
import ranks
from late_device import build

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

CASES = {**device_cases.CASES, **device_cases.HELD}


# Its source is written against this torch's interface for devices from outside.
LATE_FROM = (2, 13)
BUILDS = Path(__file__).parent.parent / "build" / "late_device"


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """What the ranks of the one job said."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < LATE_FROM:
        pytest.skip(f"the late device is not for torch {torch.__version__}")
    folder = BUILDS / torch.__version__
    build.built(folder)
    return device_cases.job(device_cases.late(folder), CASES)


@pytest.mark.runs
@pytest.mark.parametrize("name", CASES)
def test_device_tensors(name: str, outcomes: List[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)


def test_a_device_that_is_not_there_is_refused_and_ends_nothing() -> None:
    outcomes = ranks.run(
        [1, 1],
        """
        dist.init_process_group("smddp")
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        claims = FakeTensor(FakeTensorMode(), torch.empty(3, device="meta"), torch.device("cuda:99"))
        try:
            dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([claims]).wait()
            raise AssertionError("it was taken")
        except RuntimeError as error:
            assert "cuda:99, where nothing can be copied from" in str(error), error
        t = torch.ones(3); dist.all_reduce(t); assert (t == 2).all()
        dist.destroy_process_group()
        """,
    )
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
