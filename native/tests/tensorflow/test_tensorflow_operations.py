"""Every call of smdistributed.dataparallel.tensorflow, eager and in functions: its results and its errors.

One job of four ranks on two hosts runs all cases, one after the other: starting its processes is what takes time.
"""

from typing import List

import graph_cases
import operation_cases
import pytest
import ranks

pytestmark = pytest.mark.tensorflow

CASES = {**operation_cases.CASES, **graph_cases.CASES}


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    body = operation_cases.INIT + ranks.in_turn(CASES)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return ranks.start([2, 2], body, preamble=ranks.TENSORFLOW, env=environment).finish(280)


@pytest.mark.parametrize("name", CASES)
def test_operations(name: str, outcomes: List[ranks.Outcome]) -> None:
    for outcome in outcomes:
        assert f"passed {name}\n" in outcome.out, f"rank {outcome.rank}: {outcome.err}"


def test_job_exits_successfully(outcomes: List[ranks.Outcome]) -> None:
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0], [outcome.err for outcome in outcomes]
    assert "smdistributed.dataparallel.tensorflow is smdp-engine" in outcomes[0].err
