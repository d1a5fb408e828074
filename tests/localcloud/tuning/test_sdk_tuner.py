"""The SageMaker SDK's HyperparameterTuner against the local cloud, with only the environment that points to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from smdp_launch.testing import LocalCloud, local_cloud

# Ignore the SDK's own warnings.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

TRAINS = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--depth", type=int)
parser.add_argument("--optimizer")
parser.add_argument("--epochs", type=int)
arguments = parser.parse_args()
assert arguments.epochs == 2 and arguments.optimizer in ("sgd", "adam")
print(f"loss={(arguments.lr - 0.01) ** 2 + arguments.depth}", flush=True)
"""


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="mine")
        yield made


@pytest.mark.parametrize("strategy", ["Random", "Bayesian"])
def test_fit_runs_trials_and_finds_the_best(cloud: LocalCloud, tmp_path: Path, strategy: str) -> None:
    from sagemaker.estimator import Estimator
    from sagemaker.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter
    from sagemaker.session import Session
    from sagemaker.tuner import HyperparameterTuner

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAINS)
    estimator = Estimator(
        image_uri="image",
        role=cloud.role,
        instance_count=1,
        instance_type="ml.p4d.24xlarge",
        entry_point="train.py",
        source_dir=str(tmp_path / "src"),
        output_path="s3://mine/output",
        code_location="s3://mine/code",
        environment={"SMDP_WORKERS_PER_HOST": "1"},
        hyperparameters={"epochs": 2},
        sagemaker_session=Session(default_bucket="mine"),
    )
    tuner = HyperparameterTuner(
        estimator,
        "loss",
        {
            "lr": ContinuousParameter(0.001, 0.1, scaling_type="Logarithmic"),
            "depth": IntegerParameter(1, 5),
            "optimizer": CategoricalParameter(["sgd", "adam"]),
        },
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.e-]+)"}],
        strategy=strategy,
        objective_type="Minimize",
        max_jobs=3,
        max_parallel_jobs=2,
    )
    tuner.fit(wait=True)
    described = tuner.describe()
    assert described["HyperParameterTuningJobStatus"] == "Completed"
    assert described["TrainingJobStatusCounters"]["Completed"] == 3
    assert described["HyperParameterTuningJobConfig"]["Strategy"] == strategy
    frame = tuner.analytics().dataframe()
    assert len(frame) == 3
    best = frame.loc[frame["FinalObjectiveValue"].idxmin()]
    assert tuner.best_training_job() == best["TrainingJobName"]
    assert best["FinalObjectiveValue"] == pytest.approx((best["lr"] - 0.01) ** 2 + best["depth"], rel=1e-5)
