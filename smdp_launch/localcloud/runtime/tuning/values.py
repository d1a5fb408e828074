"""The values of a trial's hyperparameters: drawn from the ranges, or a combination of the lists.

A trial's values depend on the seed, on its number and on the parents of a warm start only, not on the order in which
other trials end.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDE = 1000.0  # the ratio of the bounds from which ScalingType Auto is logarithmic here
_DRAWS = 100  # until a repeated combination is accepted
_OF_LAUNCHER = ("sagemaker_", "_tuning_")  # these name the source archive and the job, which differ for each sweep

Values = dict[str, str]


def ranges_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """ParameterRanges of a CreateHyperParameterTuningJob request."""
    own: Mapping[str, Any] = definition_of(request).get("HyperParameterRanges") or request[
        "HyperParameterTuningJobConfig"
    ].get("ParameterRanges", {})
    return own


def definition_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition of the trials."""
    one: Mapping[str, Any] = request.get("TrainingJobDefinition") or request["TrainingJobDefinitions"][0]
    return one


def objective_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Type and MetricName."""
    own: Mapping[str, Any] = (
        definition_of(request).get("TuningObjective")
        or request["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"]
    )
    return own


def whole(request: Mapping[str, Any], values: Values) -> Values:
    """All hyperparameters of a trial, without those that a launcher or the SDK sets for itself."""
    fixed = definition_of(request).get("StaticHyperParameters", {})
    return {name: value for name, value in {**fixed, **values}.items() if not name.startswith(_OF_LAUNCHER)}


def most_trials(request: Mapping[str, Any], done: Sequence[Values] = ()) -> int:
    """Args:
    done: all hyperparameters of trials that a grid does not repeat.
    """
    config = request["HyperParameterTuningJobConfig"]
    if config["Strategy"] == "Grid":
        return sum(1 for _ in _grid(request, done)) if done else combinations(ranges_of(request))
    return int(config["ResourceLimits"]["MaxNumberOfTrainingJobs"])


def _grid(request: Mapping[str, Any], done: Sequence[Values]) -> Iterator[Values]:
    lists = ranges_of(request)["CategoricalParameterRanges"]
    repeated = {frozenset(one.items()) for one in done}
    for chosen in itertools.product(*(one["Values"] for one in lists)):
        values = {one["Name"]: value for one, value in zip(lists, chosen, strict=True)}
        if not repeated or frozenset(whole(request, values).items()) not in repeated:
            yield values


def combinations(ranges: Mapping[str, Any]) -> int:
    return math.prod(len(one["Values"]) for one in ranges.get("CategoricalParameterRanges", []))


def trial_values(
    request: Mapping[str, Any], number: int, earlier: Sequence[Values], seed: str, done: Sequence[Values] = ()
) -> Values:
    """The values of a trial.

    Args:
        number: of the trial, from 0.
        earlier: the values of the trials before it.
        seed: if the request has none.
        done: all hyperparameters of the trials of parents that are not repeated.
    """
    config, ranges = request["HyperParameterTuningJobConfig"], ranges_of(request)
    if config["Strategy"] == "Grid":
        return next(itertools.islice(_grid(request, done), number, None))
    source = random.Random(f"{config.get('RandomSeed', seed)}-{number}")  # noqa: S311 (no secret)
    for _ in range(_DRAWS):
        values = _draw(ranges, source)
        if values not in earlier and (not done or whole(request, values) not in done):
            break
    return values


def _draw(ranges: Mapping[str, Any], source: random.Random) -> Values:
    values: Values = {}
    for one in ranges.get("IntegerParameterRanges", []):
        low, high = int(one["MinValue"]), int(one["MaxValue"])
        drawn = _number(low - 0.5 if low > 0 else low, high, one, source) if _is_scaled(one) else None
        whole = source.randint(low, high) if drawn is None else round(drawn)
        values[one["Name"]] = str(min(max(whole, low), high))
    for one in ranges.get("ContinuousParameterRanges", []):
        low_, high_ = float(one["MinValue"]), float(one["MaxValue"])
        values[one["Name"]] = repr(min(max(_number(low_, high_, one, source), low_), high_))
    for one in ranges.get("CategoricalParameterRanges", []):
        values[one["Name"]] = source.choice(one["Values"])
    return values


def _is_scaled(one: Mapping[str, Any]) -> bool:
    return _scale(float(one["MinValue"]), float(one["MaxValue"]), one.get("ScalingType", "Auto")) != "Linear"


def _scale(low: float, high: float, requested: str) -> str:
    if requested != "Auto":
        return requested
    return "Logarithmic" if low > 0 and high / low >= _WIDE else "Linear"


def _number(low: float, high: float, one: Mapping[str, Any], source: random.Random) -> float:
    scale = _scale(low, high, one.get("ScalingType", "Auto"))
    if scale == "Logarithmic":
        return math.exp(source.uniform(math.log(low), math.log(high)))
    if scale == "ReverseLogarithmic":
        return 1 - math.exp(source.uniform(math.log1p(-high), math.log1p(-low)))
    return source.uniform(low, high)
