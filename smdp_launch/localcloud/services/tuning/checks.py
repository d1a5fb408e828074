"""The checks of CreateHyperParameterTuningJob beyond the service's model.

The limits are those of the API reference; what the local cloud does not run is refused as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from smdp_launch.localcloud.errors import validation
from smdp_launch.localcloud.protocol.requests import Parameters
from smdp_launch.localcloud.runtime.tuning.values import combinations, definition_of, objective_of, ranges_of
from smdp_launch.localcloud.services.serving.models import unsupported
from smdp_launch.localcloud.services.tags import check_tags

_MOST_RANGES = 30
_MOST_HYPERPARAMETERS = 100
_EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")


def check_tuning_job(request: Parameters) -> None:
    """Raises ServiceError."""
    check_tags(request.get("Tags", []))
    if request.get("Autotune"):
        raise unsupported("Autotune")
    given = [*request.get("TrainingJobDefinitions", []), *filter(None, [request.get("TrainingJobDefinition")])]
    if len(given) != 1:
        if not given:
            raise validation("TrainingJobDefinition or TrainingJobDefinitions must be provided.")
        raise unsupported("several training job definitions in a tuning job")
    definition = definition_of(request)
    if ("HyperParameterTuningResourceConfig" in definition) == ("ResourceConfig" in definition):
        raise validation("Either ResourceConfig or HyperParameterTuningResourceConfig must be provided.")
    _check_objective(request, definition)
    _check_ranges(ranges_of(request), definition)
    _check_limits(request, definition)


def _check_objective(request: Parameters, definition: Mapping[str, Any]) -> None:
    if not (definition.get("TuningObjective") or "HyperParameterTuningJobObjective" in request[_CONFIG]):
        raise validation("HyperParameterTuningJobObjective must be provided.")
    metric = objective_of(request)["MetricName"]
    names = [one["Name"] for one in definition["AlgorithmSpecification"].get("MetricDefinitions", [])]
    if metric not in names:
        # https://github.com/aws/sagemaker-python-sdk/issues/3932
        raise validation(
            "A metric is required for this hyperparameter tuning job objective. "
            "Provide a metric in the metric definitions."
        )


_CONFIG = "HyperParameterTuningJobConfig"


def _bounded(ranges: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], float, float]]:
    for kind, read in (("IntegerParameterRanges", int), ("ContinuousParameterRanges", float)):
        for one in ranges.get(kind, []):
            try:
                yield one, read(one["MinValue"]), read(one["MaxValue"])
            except ValueError:
                raise validation(f"The bounds of hyperparameter {one['Name']!r} in {kind} are not numbers.") from None


def _check_ranges(ranges: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    if ranges.get("AutoParameters"):
        raise unsupported("AutoParameters")
    names = [one["Name"] for each in ranges.values() for one in each]
    if not names:
        raise validation("At least one hyperparameter range must be provided.")
    if len(names) > _MOST_RANGES:
        raise validation(f"{len(names)} hyperparameter ranges; at most {_MOST_RANGES} are allowed.")
    fixed = definition.get("StaticHyperParameters", {})
    twice = [one for one in names if names.count(one) > 1 or one in fixed]
    if twice:
        raise validation(f"Hyperparameter {twice[0]!r} is given more than once, as static or with a range.")
    if len(names) + len(fixed) + 1 > _MOST_HYPERPARAMETERS:
        raise validation(f"More than {_MOST_HYPERPARAMETERS} hyperparameters, static and with ranges together.")
    for one, low, high in _bounded(ranges):
        scale = one.get("ScalingType", "Auto")
        if not low < high:
            raise validation(f"MinValue of hyperparameter {one['Name']!r} must be less than its MaxValue.")
        if scale == "Logarithmic" and low <= 0:
            raise validation(f"Logarithmic scaling of hyperparameter {one['Name']!r} needs values greater than 0.")
        if scale == "ReverseLogarithmic" and not (low >= 0 and high < 1):
            raise validation(f"ReverseLogarithmic scaling of hyperparameter {one['Name']!r} needs 0 <= x < 1.0.")


def _check_limits(request: Parameters, definition: Mapping[str, Any]) -> None:
    config, ranges = request[_CONFIG], ranges_of(request)
    strategy, limits = config["Strategy"], config["ResourceLimits"]
    most = limits.get("MaxNumberOfTrainingJobs")
    if strategy == "Grid":
        if ranges.get("IntegerParameterRanges") or ranges.get("ContinuousParameterRanges"):
            raise validation("Grid search supports only categorical hyperparameter ranges.")
        if most not in (None, combinations(ranges)):
            raise validation(f"MaxNumberOfTrainingJobs of a grid search must be {combinations(ranges)} or absent.")
    elif most is None:
        raise validation(f"MaxNumberOfTrainingJobs must be provided with the strategy {strategy}.")
    elif limits["MaxParallelTrainingJobs"] > most:
        raise validation("MaxParallelTrainingJobs must not be greater than MaxNumberOfTrainingJobs.")
    else:
        _check_combinations(ranges, most)
    _check_hyperband(config, definition)


def _check_combinations(ranges: Mapping[str, Any], most: int) -> None:
    """Raises ServiceError: https://github.com/aws/amazon-sagemaker-operator-for-k8s/issues/123 quotes the message."""
    if ranges.get("ContinuousParameterRanges"):
        return
    whole = [int(one["MaxValue"]) - int(one["MinValue"]) + 1 for one in ranges.get("IntegerParameterRanges", [])]
    found = math.prod(whole) * combinations(ranges)
    if most > found:
        raise validation(
            "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter "
            f"combinations for the provided ranges [{float(found)}] must be equal or greater than the value of "
            f"MaxNumberOfJobs, [{most}]. Provide additional ranges."
        )


def _check_hyperband(config: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    hyperband = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig", {})
    if config["Strategy"] != "Hyperband":
        if hyperband:
            raise validation("HyperbandStrategyConfig needs the strategy Hyperband.")
        return
    if config.get("TrainingJobEarlyStoppingType", "Off") != "Off":
        raise validation("TrainingJobEarlyStoppingType must be Off with the strategy Hyperband.")
    if "MaxResource" not in hyperband and not set(_EPOCHS) & set(definition.get("StaticHyperParameters", {})):
        raise validation("MaxResource of HyperbandStrategyConfig must be provided.")
    if hyperband.get("MinResource", 1) > hyperband.get("MaxResource", 20_000):
        raise validation("MinResource must not be greater than MaxResource.")
