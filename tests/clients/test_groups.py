"""Jobs with several instance groups: the SageMaker SDK's own call, the estimator and the plan have the same request.

`make test-clients` makes the SDK's environment and runs this there. Nothing reaches a network: connecting is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import smdp_launch
from tests.clients.estimators import Caught, alone, caught, session, trained
from tests.conftest import JOB, write_job

__all__ = ["alone", "caught", "session"]  # fixtures

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

GROUPS = """  max_run: 600
  group_name: gpus
  other_groups: {data: {instance_type: ml.c5.18xlarge, instance_count: 3}}
"""
SCRIPT = "import os\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'])\n"


def job_file(folder: Path, engine: str, kind: str, framework: str = "pytorch", version: str = "2.0.1") -> Path:
    text = JOB.replace("  max_run: 600\n", GROUPS).replace("engine: native", f"engine: {engine}")
    text = text.replace("ml.p4d.24xlarge", kind).replace('"s3://bucket/train"', '"s3://bucket/train", groups: [data]')
    text = text.replace('{name: pytorch, version: "2.0.1"}', f'{{name: {framework}, version: "{version}"}}')
    return write_job(folder, text + "policy: extended\n", SCRIPT)


@pytest.mark.parametrize(
    ("engine", "kind", "framework", "version", "name"),
    [
        ("native", "ml.p4d.24xlarge", "pytorch", "2.0.1", "PyTorch"),
        ("smdistributed", "ml.p4d.24xlarge", "tensorflow", "2.11.0", "TensorFlow"),
        ("native", "ml.p5.48xlarge", "pytorch", "2.0.1", "Estimator"),
        ("nccl", "ml.g5.12xlarge", "pytorch", "2.0.1", "Estimator"),
        ("gloo", "ml.c5.4xlarge", "pytorch", "2.0.1", "Estimator"),
    ],
)
def test_estimator_with_groups_sends_request_of_plan(
    tmp_path: Path, engine: str, kind: str, framework: str, version: str, name: str
) -> None:
    plan = smdp_launch.plan(job_file(tmp_path, engine, kind, framework, version))
    estimator, caught = trained(plan)
    assert type(estimator).__name__ == name
    assert caught.requests == [plan.request]


def test_request_of_the_sdks_own_call_equals_that_of_the_plan(
    tmp_path: Path, session: Any, caught: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagemaker.estimator import EstimatorBase
    from sagemaker.inputs import TrainingInput
    from sagemaker.instance_group import InstanceGroup
    from sagemaker.pytorch import PyTorch

    # Without the SDK's telemetry, and without its upload of the source.
    monkeypatch.setattr(EstimatorBase, "fit", EstimatorBase.fit.__wrapped__)
    plan = smdp_launch.plan(job_file(tmp_path, "smdistributed", "ml.p4d.24xlarge"))
    gpus = InstanceGroup("gpus", "ml.p4d.24xlarge", 2)
    estimator = PyTorch(
        entry_point="train.py",
        source_dir="s3://bucket/sourcedir.tar.gz",
        role=plan.spec.role,
        image_uri=plan.image.uri,
        framework_version="2.0.1",
        py_version="py310",
        instance_groups=[gpus, InstanceGroup("data", "ml.c5.18xlarge", 3)],
        distribution={"smdistributed": {"dataparallel": {"enabled": True}}, "instance_groups": [gpus]},
        output_path=plan.spec.output.s3,
        max_run=600,
        hyperparameters={"epochs": 2},
        sagemaker_session=session,
        debugger_hook_config=False,
        disable_profiler=True,
    )
    inputs = {"train": TrainingInput("s3://bucket/train", instance_groups=["data"], input_mode="File")}
    estimator.fit(inputs, wait=False, job_name=plan.job)
    sent, planned = caught.requests.pop(), dict(plan.request)
    names = {"sagemaker_submit_directory"}  # the SDK has its own archive, in another place
    assert {name: value for name, value in sent.pop("HyperParameters").items() if name not in names} == {
        name: value for name, value in planned.pop("HyperParameters").items() if name not in names
    }
    for one in ("Tags", "Environment"):  # the hash of the plan; the SDK sends an empty environment
        planned.pop(one, None)
        sent.pop(one, None)
    sent.pop("ProfilerConfig", None)  # which only disables the profiler
    sent["AlgorithmSpecification"].pop("EnableSageMakerMetricsTimeSeries")  # the SDK's default
    assert sent == planned
    assert json.loads(plan.request["HyperParameters"]["sagemaker_distribution_instance_groups"]) == ["gpus"]
