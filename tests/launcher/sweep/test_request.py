"""The request of a sweep: nothing of the training job is lost, and the ranges arrive as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from smdp_launch.checking.job import check_job, check_mapping
from smdp_launch.errors import JobFileRefused, Refused
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan
from smdp_launch.planning.saved import load, save
from smdp_launch.planning.summary import summary
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.limits import walk
from smdp_launch.request.tuning import OPERATION
from tests.conftest import JOB, write_job
from tests.support.job_files.generated import SCALARS, jobs
from tests.support.jobs.plans import NOW, plan_of
from tests.support.properties import examples

SWEEP = """\
metrics: {"val:loss": 'loss=([0-9.]+)'}
sweep:
  objective: {metric: "val:loss", goal: minimize, target: 0.25}
  strategy: random
  trials: 7
  parallel: 2
  seed: 11
  early_stopping: auto
  budget: {max_run: 900}
  ranges:
    continuous: {lr: {min: 1.0e-5, max: 0.1, scaling: logarithmic}, momentum: {min: 0, max: 0.99}}
    integer: {depth: {min: 1, max: 8, scaling: linear}}
    categorical: {optimizer: [sgd, adam], nesterov: [true, false], width: [64, 1.5]}
"""

#: The fields of CreateTrainingJob that a TrainingJobDefinition has, by botocore's model.
_MODEL = Session().get_service_model("sagemaker")
_CARRIED = set(_MODEL.shape_for("HyperParameterTrainingJobDefinition").members) & set(
    _MODEL.shape_for("CreateTrainingJobRequest").members
)
_ALGORITHM = set(_MODEL.shape_for("HyperParameterAlgorithmSpecification").members)
_ELSEWHERE = {"TrainingJobName", "HyperParameters", "Tags"}


def plan(folder: Path, text: str = JOB + SWEEP) -> Plan:
    return plan_of(write_job(folder, text))


def test_config_is_that_of_the_file(tmp_path: Path) -> None:
    tuning = plan(tmp_path).tuning
    assert tuning is not None
    assert tuning["HyperParameterTuningJobConfig"] == {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "val:loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 7, "MaxParallelTrainingJobs": 2, "MaxRuntimeInSeconds": 900},
        "ParameterRanges": {
            "IntegerParameterRanges": [{"Name": "depth", "MinValue": "1", "MaxValue": "8", "ScalingType": "Linear"}],
            "ContinuousParameterRanges": [
                {"Name": "lr", "MinValue": "1e-05", "MaxValue": "0.1", "ScalingType": "Logarithmic"},
                {"Name": "momentum", "MinValue": "0.0", "MaxValue": "0.99", "ScalingType": "Auto"},
            ],
            "CategoricalParameterRanges": [
                {"Name": "optimizer", "Values": ['"sgd"', '"adam"']},
                {"Name": "nesterov", "Values": ["true", "false"]},
                {"Name": "width", "Values": ["64", "1.5"]},
            ],
        },
        "TrainingJobEarlyStoppingType": "Auto",
        "TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": 0.25},
        "RandomSeed": 11,
    }


def test_grid_has_no_number_of_trials(tmp_path: Path) -> None:
    text = f"""{JOB}metrics: {{loss: 'loss=([0-9.]+)'}}
sweep:
  objective: {{metric: loss, goal: maximize}}
  strategy: grid
  parallel: 4
  ranges: {{categorical: {{lr: [0.1, 0.01, 0.001], width: [64, 128]}}}}
"""
    made = plan(tmp_path, text)
    assert made.tuning is not None
    config = made.tuning["HyperParameterTuningJobConfig"]
    assert config["ResourceLimits"] == {"MaxParallelTrainingJobs": 4}
    assert made.sweep_bounds is not None
    # 6 trials in 2 waves of 600 s, on 2 hosts each.
    assert made.sweep_bounds[:3] == (6, 1200, 2.0)


def test_hyperband_and_warm_start_are_in_the_request(tmp_path: Path) -> None:
    more = "  strategy: hyperband\n  hyperband: {min_resource: 1, max_resource: 27}\n"
    more += "  warm_start: {parents: [earlier-2611210102-beef], type: transfer}\n"
    text = SWEEP.replace("  strategy: random\n", more).replace("  early_stopping: auto\n", "")
    tuning = plan(tmp_path, JOB + text).tuning
    assert tuning is not None
    config = tuning["HyperParameterTuningJobConfig"]
    assert (config["Strategy"], config["TrainingJobEarlyStoppingType"]) == ("Hyperband", "Off")
    assert config["StrategyConfig"] == {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 27}}
    assert tuning["WarmStartConfig"] == {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "earlier-2611210102-beef"}],
        "WarmStartType": "TransferLearning",
    }


def test_name_has_at_most_32_characters(tmp_path: Path) -> None:
    made = plan(tmp_path, JOB + SWEEP + "  name: sixteen-letters-\n".replace("letters-", "letters1"))
    assert made.tuning is not None
    assert made.job == made.tuning["HyperParameterTuningJobName"] == "sixteen-letters1-2611210102-beef"
    assert len(made.job) == 32


def test_cost_is_bounded_by_the_trials_and_by_the_time_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("date: 2026-11-01\nsource: ours\nprices: {us-east-1: {ml.p4d.24xlarge: 30}}\n")
    text = f"{JOB}budget: {{prices: p.yaml}}\n{SWEEP}"
    made = plan(tmp_path, text)
    # Two trials at a time on two hosts each, for 900 s: less than 7 trials of 600 s.
    assert made.sweep_bounds == (7, 900, 1.0, 30.0)
    unbounded = plan(tmp_path, text.replace("  budget: {max_run: 900}\n", ""))
    assert unbounded.sweep_bounds is not None
    assert unbounded.sweep_bounds[:2] == (7, 2400)
    assert unbounded.sweep_bounds.usd == pytest.approx(7 * 600 * 2 / 3600 * 30)
    rows = dict(summary(made))
    assert rows["sweep"] == "7 trials, 2 at a time, strategy random"
    assert rows["all trials"] == "at most 15 min of run time, 1.00 instance-hours: 30.00 USD"


@given(jobs(), st.lists(SCALARS, min_size=1, max_size=5, unique_by=json.dumps))
@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_field_that_a_trial_can_have_is_that_of_the_training_job(
    tmp_path: Path, job: dict[str, Any], values: list[Any]
) -> None:
    """Fields that it cannot have are refused, never left out."""
    write_job(tmp_path)
    (tmp_path / "src" / "lib").mkdir(exist_ok=True)
    (tmp_path / "src" / "lib" / "train.py").write_text("print('trained')\n")
    job = job | {
        "name": job["name"][:16].rstrip("-"),
        "metrics": {**dict(list(job.get("metrics", {}).items())[:39]), "swept": "x=([0-9]+)"},
        "sweep": {
            "objective": {"metric": "swept", "goal": "maximize"},
            "trials": 5,
            "ranges": {
                "categorical": {"tried-here": [*values, "another value"]},
                "integer": {"counted-here": {"min": 1, "max": 9}},
            },
        },
    }
    checked = check_mapping(job, tmp_path, environ={})
    try:
        made = make_plan(checked, NOW, 0xBEEF)
    except JobFileRefused as refusal:
        codes = {one.code for one in refusal.diagnostics if one.severity.value == "error"}
        assert codes <= {"SMDP527", "SMDP528"}
        lost = set(job.get("overlay", {})) - _CARRIED
        is_lost = bool(lost or job.get("remote_debug") or (job.get("tracking") or {}).get("tensorboard"))
        is_lost |= bool(set(job.get("overlay", {}).get("AlgorithmSpecification", {})) - _ALGORITHM)
        assert is_lost or "SMDP528" in codes
        return
    training, tuning = make_plan(checked, NOW, 0xBEEF, with_sweep=False).request, made.tuning
    assert tuning is not None
    training = json.loads(json.dumps(training).replace(training["TrainingJobName"], made.job))
    definition = tuning["TrainingJobDefinition"]
    assert set(training) <= _CARRIED | _ELSEWHERE
    assert {name: definition[name] for name in set(training) - _ELSEWHERE} == {
        name: training[name] for name in set(training) - _ELSEWHERE
    }
    assert definition["StaticHyperParameters"] == training["HyperParameters"]
    assert [one for one in tuning["Tags"] if one["Key"] != PLAN_TAG] == [
        one for one in training["Tags"] if one["Key"] != PLAN_TAG
    ]
    shape = _MODEL.operation_model(OPERATION).input_shape
    assert not ParamValidator().validate(tuning, shape).has_errors()
    assert list(walk(tuning, OPERATION)) == []


def test_plan_without_the_sweep_is_that_of_one_job(tmp_path: Path) -> None:
    made = make_plan(check_job(write_job(tmp_path, JOB + SWEEP)), NOW, 0xBEEF, with_sweep=False)
    assert (made.tuning, made.job) == (None, "small-20261121010203-beef")


def test_saved_plan_has_the_request_of_the_sweep(tmp_path: Path) -> None:
    made = plan(tmp_path)
    save(made, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json").tuning == made.tuning
    changed = (
        (tmp_path / "plan.json").read_text().replace('"MaxParallelTrainingJobs": 2', '"MaxParallelTrainingJobs": 9')
    )
    (tmp_path / "plan.json").write_text(changed)
    with pytest.raises(Refused, match="hash does not match"):
        load(tmp_path / "plan.json")
