"""The values of trials: within their ranges, repeatable, and each combination of a grid once."""

from __future__ import annotations

from typing import Any

from smdp_launch.localcloud.runtime.tuning.values import most_trials, trial_values

RANGES = {
    "IntegerParameterRanges": [{"Name": "depth", "MinValue": "1", "MaxValue": "4", "ScalingType": "Linear"}],
    "ContinuousParameterRanges": [
        {"Name": "lr", "MinValue": "1e-05", "MaxValue": "0.1", "ScalingType": "Logarithmic"},
        {"Name": "momentum", "MinValue": "0.5", "MaxValue": "0.999", "ScalingType": "ReverseLogarithmic"},
    ],
    "CategoricalParameterRanges": [{"Name": "optimizer", "Values": ['"sgd"', '"adam"']}],
}


def request(strategy: str, ranges: dict[str, Any], **config: Any) -> dict[str, Any]:
    limits = {"MaxParallelTrainingJobs": 2, "MaxNumberOfTrainingJobs": 100}
    common = {"Strategy": strategy, "ResourceLimits": limits, "ParameterRanges": ranges}
    return {"HyperParameterTuningJobConfig": {**common, **config}, "TrainingJobDefinition": {"RoleArn": "role"}}


def test_values_are_within_their_ranges_and_follow_the_scale() -> None:
    made = [trial_values(request("Random", RANGES), number, [], "seed") for number in range(400)]
    assert {one["depth"] for one in made} == {"1", "2", "3", "4"}
    assert {one["optimizer"] for one in made} == {'"sgd"', '"adam"'}
    rates = [float(one["lr"]) for one in made]
    assert all(1e-5 <= one <= 0.1 for one in rates)
    # Two of four decades: half of the values. Without the scale it would be 1 %.
    assert 0.4 < sum(one < 1e-3 for one in rates) / 400 < 0.6
    momenta = [float(one["momentum"]) for one in made]
    assert all(0.5 <= one <= 0.999 for one in momenta)
    assert 0.5 < sum(one > 0.95 for one in momenta) / 400 < 0.75


def test_logarithmic_whole_numbers_reach_both_bounds() -> None:
    ranges = {"IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "3", "ScalingType": "Logarithmic"}]}
    assert {trial_values(request("Random", ranges), number, [], "s")["n"] for number in range(99)} == {"1", "2", "3"}


def test_seed_repeats_the_values() -> None:
    first = [trial_values(request("Random", RANGES, RandomSeed=7), number, [], "one") for number in range(5)]
    assert first == [trial_values(request("Random", RANGES, RandomSeed=7), number, [], "two") for number in range(5)]
    assert first != [trial_values(request("Random", RANGES, RandomSeed=8), number, [], "one") for number in range(5)]


def test_values_of_earlier_trials_are_not_repeated() -> None:
    ranges = {"CategoricalParameterRanges": [{"Name": "a", "Values": ["1", "2", "3", "4"]}]}
    made: list[dict[str, str]] = []
    for number in range(4):
        made.append(trial_values(request("Random", ranges), number, made, "seed"))
    assert sorted(one["a"] for one in made) == ["1", "2", "3", "4"]


def test_grid_tries_each_combination_once() -> None:
    lists = [{"Name": "a", "Values": ["1", "2"]}, {"Name": "b", "Values": ["x", "y", "z"]}]
    grid = request("Grid", {"CategoricalParameterRanges": lists})
    assert most_trials(grid) == 6
    made = [tuple(trial_values(grid, number, [], "seed").items()) for number in range(6)]
    assert len(set(made)) == 6
    assert made[0] == (("a", "1"), ("b", "x"))
