"""The SageMaker SDK's estimators with ``torch_distributed`` send the plan's request, for 200 generated jobs.

`make test-clients` makes their environment and runs this there. Nothing reaches a network: connecting is an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import smdp_launch
from smdp_launch import build_estimator, build_inputs
from smdp_launch.catalog.instances import instances
from tests.clients.estimators import Caught, alone, caught, folder, session, trained
from tests.conftest import JOB, write_job
from tests.support.job_files.generated import TORCH_KINDS, jobs

__all__ = ["alone", "caught", "folder", "session"]  # fixtures

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

SWITCH = {"torch_distributed": {"enabled": True}}
#: Every type whose GPUs the images of all generated jobs support.
TYPES = tuple(one.name for one in instances() if one.cuda_min is None or float(one.cuda_min) <= 11.7)


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(job=jobs(TORCH_KINDS, TYPES))
def test_estimator_of_generated_job_sends_request_of_plan(
    job: dict[str, Any], folder: Path, session: Any, caught: Caught
) -> None:
    os.chdir(folder)
    plan = smdp_launch.plan(job)
    estimator = build_estimator(plan, session=session)
    estimator.fit(build_inputs(plan), wait=False)
    request = caught.requests.pop()
    assert request == plan.request
    assert request["HyperParameters"]["sagemaker_torch_distributed_enabled"] == "true"
    assert not any("dataparallel" in one for one in request["HyperParameters"])
    if job["engine"] == "nccl":
        assert estimator.distribution == SWITCH


NCCL = JOB.replace("engine: native", "engine: nccl").replace("image: ", "# image: ").replace('"2.0.1"', '"2.5.1"')


@pytest.mark.parametrize("type_", ["ml.p5.48xlarge", "ml.p4de.24xlarge", "ml.g5.2xlarge", "ml.g6e.48xlarge"])
def test_stock_estimator_sends_the_same_hyperparameters(
    type_: str, tmp_path: Path, session: Any, caught: Caught
) -> None:
    """An estimator that a person writes, with the SDK's own image: the switch and the image are those of the plan."""
    from sagemaker.estimator import EstimatorBase
    from sagemaker.pytorch import PyTorch

    plan = smdp_launch.plan(write_job(tmp_path, NCCL.replace("ml.p4d.24xlarge", type_)))
    stock = PyTorch(
        entry_point="train.py",
        source_dir="s3://bucket/sourcedir.tar.gz",
        role=plan.spec.role,
        framework_version="2.5.1",
        py_version="py311",
        instance_type=type_,
        instance_count=2,
        distribution=SWITCH,
        hyperparameters={"epochs": 2},
        output_path="s3://bucket/output",
        sagemaker_session=session,
    )
    EstimatorBase.fit.__wrapped__(stock, {"train": "s3://bucket/train"}, wait=False, job_name=plan.job)
    theirs, ours = caught.requests.pop(), plan.request
    differing = {"sagemaker_submit_directory"}
    assert {key: value for key, value in theirs["HyperParameters"].items() if key not in differing} == {
        key: value for key, value in ours["HyperParameters"].items() if key not in differing
    }
    assert theirs["AlgorithmSpecification"]["TrainingImage"] == ours["AlgorithmSpecification"]["TrainingImage"]
    assert theirs["ResourceConfig"] == ours["ResourceConfig"]


def test_shell_script_has_the_generic_class(tmp_path: Path) -> None:
    """The SDK has torch_distributed only for Python files; an own image may start a shell script."""
    text = JOB.replace("engine: native", "engine: nccl").replace("entry: train.py", "entry: run.sh")
    path = write_job(tmp_path, text)
    (tmp_path / "src" / "run.sh").write_text("python train.py\n")
    plan = smdp_launch.plan(path)
    estimator, caught = trained(plan)
    assert type(estimator).__name__ == "Estimator"
    assert caught.requests == [plan.request]
