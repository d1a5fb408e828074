"""Tensors on a device that delays its operations: a missing wait gives wrong values."""

import importlib.metadata
import os
from pathlib import Path
from typing import List

import device_cases
import late_device_build
import pytest
import ranks
from torch_version import needs_torch, torch_version

pytestmark = [pytest.mark.torch, needs_torch]

CASES = {**device_cases.CASES, **device_cases.HELD}


# The late device needs the interface of this version of torch for external devices.
LATE_FROM = (2, 13)
BUILDS = Path(__file__).parents[2] / "build" / "late_device"


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    version = importlib.metadata.version("torch")
    if torch_version() < LATE_FROM:
        pytest.skip(f"the late device does not support torch {version}")
    folder = BUILDS / version
    late_device_build.built(folder)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return device_cases.job(device_cases.LATE, CASES, env={"PYTHONPATH": path})


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
