"""Build the CreateHyperParameterTuningJob request of a sweep. Pure: the same input gives the same request.

The definition of the trials is the request of the training job itself, field by field. ``lost_fields`` lists what
such a definition cannot have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from smdp_launch.catalog.limits import request_shape, shape
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.model.sweep import Sweep
from smdp_launch.request.build import PLAN_TAG, Request, request_hash
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.limits import Path
from smdp_launch.source.scan import SourceTree

OPERATION = "CreateHyperParameterTuningJob"
#: The most hyperparameters with a range, of all kinds together.
MOST_RANGES = 30
#: Hyperparameters from which SageMaker reads Hyperband's MaxResource, if the request has none.
EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")

#: The WarmStartType of a sweep with the data and the image of its parents.
IDENTICAL = "IdenticalDataAndAlgorithm"
#: The most parents of a warm start.
MOST_PARENTS = 5
_STRATEGIES = {"bayesian": "Bayesian", "random": "Random", "grid": "Grid", "hyperband": "Hyperband"}
_SCALINGS = {
    "auto": "Auto",
    "linear": "Linear",
    "logarithmic": "Logarithmic",
    "reverse_logarithmic": "ReverseLogarithmic",
}
_WARM_STARTS = {"identical": IDENTICAL, "transfer": "TransferLearning"}
#: Fields of the training job that the tuning job has under another name or by itself.
_MOVED = frozenset({"TrainingJobName", "HyperParameters", "Tags"})
_ANY_NAME = "<sweep>"


def base_name(spec: JobSpec) -> str:
    """The sweep's name without its time."""
    return spec.sweep.name if spec.sweep is not None and spec.sweep.name is not None else spec.name


def tuning_request(spec: JobSpec, training: Request, source: SourceTree) -> Request:
    """The arguments for ``create_hyper_parameter_tuning_job``.

    Args:
        training: the request of one training job that has the sweep's name.
    """
    sweep = _sweep(spec)
    name = training["TrainingJobName"]
    request: Request = {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": _config(sweep),
        "TrainingJobDefinition": trial_definition(training),
    }
    if sweep.warm_start is not None:
        request["WarmStartConfig"] = {
            "ParentHyperParameterTuningJobs": [
                {"HyperParameterTuningJobName": one} for one in sweep.warm_start.parents
            ],
            "WarmStartType": _WARM_STARTS[sweep.warm_start.type],
        }
    tags = [one for one in training["Tags"] if one["Key"] != PLAN_TAG]
    return request | {"Tags": [*tags, {"Key": PLAN_TAG, "Value": tuning_hash(request, source)}]}


def trial_definition(training: Request) -> Request:
    """The TrainingJobDefinition: every field of the training job's request that it can have, unchanged.

    The values that a range replaces are in no request: a name cannot have both.
    """
    known = shape("HyperParameterTrainingJobDefinition").members
    definition = {name: value for name, value in training.items() if name in known}
    algorithm = shape("HyperParameterAlgorithmSpecification").members
    definition["AlgorithmSpecification"] = {
        name: value for name, value in training["AlgorithmSpecification"].items() if name in algorithm
    }
    return {"StaticHyperParameters": training["HyperParameters"], **definition}


def lost_fields(training: Mapping[str, Any]) -> Iterator[Path]:
    """The fields of a training job's request that a tuning job cannot have."""
    known = shape("HyperParameterTrainingJobDefinition").members
    for name in training:
        if name not in known and name not in _MOVED and name in request_shape("CreateTrainingJob").members:
            yield (name,)
    algorithm = shape("HyperParameterAlgorithmSpecification").members
    for name in training.get("AlgorithmSpecification", {}):
        if name not in algorithm:
            yield ("AlgorithmSpecification", name)


def tuning_hash(request: Request, source: SourceTree) -> str:
    """The hash of the request without its name and tags, and of the source, as ``plan_hash`` of a training job."""
    return request_hash(request, source, request["HyperParameterTuningJobName"], _ANY_NAME)


def range_names(sweep: Sweep) -> list[str]:
    """The hyperparameters with a range, in the order of the file."""
    return [*sweep.ranges.integer, *sweep.ranges.continuous, *sweep.ranges.categorical]


def combinations(sweep: Sweep) -> int:
    """The number of combinations of the lists."""
    return math.prod(len(values) for values in sweep.ranges.categorical.values())


def trials(sweep: Sweep) -> int:
    """The most trials that the sweep runs. Without `trials` a grid has one for each combination, and others one."""
    if sweep.trials is not None:
        return sweep.trials
    return combinations(sweep) if sweep.strategy == "grid" else 1


def number(value: float) -> str:
    """A bound as the request has it: the shortest text that gives the same number."""
    return repr(float(value))


def _sweep(spec: JobSpec) -> Sweep:
    if spec.sweep is None:
        raise ValueError("the job file has no section sweep")
    return spec.sweep


def _config(sweep: Sweep) -> Request:
    limits: Request = {"MaxParallelTrainingJobs": sweep.parallel}
    if sweep.strategy != "grid" or sweep.trials is not None:
        limits["MaxNumberOfTrainingJobs"] = trials(sweep)
    if sweep.budget.max_run is not None:
        limits["MaxRuntimeInSeconds"] = sweep.budget.max_run
    config: Request = {
        "Strategy": _STRATEGIES[sweep.strategy],
        "HyperParameterTuningJobObjective": {
            "Type": sweep.objective.goal.capitalize(),
            "MetricName": sweep.objective.metric,
        },
        "ResourceLimits": limits,
        "ParameterRanges": _ranges(sweep),
        "TrainingJobEarlyStoppingType": sweep.early_stopping.capitalize(),
    }
    hyperband = {
        "MinResource": sweep.hyperband.min_resource,
        "MaxResource": sweep.hyperband.max_resource,
    }
    given = {name: value for name, value in hyperband.items() if value is not None}
    if given:
        config["StrategyConfig"] = {"HyperbandStrategyConfig": given}
    if sweep.objective.target is not None:
        config["TuningJobCompletionCriteria"] = {"TargetObjectiveMetricValue": sweep.objective.target}
    if sweep.seed is not None:
        config["RandomSeed"] = sweep.seed
    return config


def _ranges(sweep: Sweep) -> Request:
    ranges = sweep.ranges
    bounded = {
        "IntegerParameterRanges": [
            _bounds(name, str(one.min), str(one.max), one.scaling) for name, one in ranges.integer.items()
        ],
        "ContinuousParameterRanges": [
            _bounds(name, number(one.min), number(one.max), one.scaling) for name, one in ranges.continuous.items()
        ],
        # JSON, as all hyperparameters: a value keeps its type on the way to the script.
        "CategoricalParameterRanges": [
            {"Name": name, "Values": [encode_value(one) for one in values]}
            for name, values in ranges.categorical.items()
        ],
    }
    return {name: value for name, value in bounded.items() if value}


def _bounds(name: str, low: str, high: str, scaling: str) -> Request:
    return {"Name": name, "MinValue": low, "MaxValue": high, "ScalingType": _SCALINGS[scaling]}
