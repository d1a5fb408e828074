"""Warm start: which parents a tuning job can have, and what it does with their trials."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.runtime.tuning.values import most_trials, trial_values, whole
from smdp_launch.localcloud.services.tuning.parents import check_parent

REQUEST: dict[str, Any] = {
    "HyperParameterTuningJobConfig": {
        "Strategy": "Grid",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxParallelTrainingJobs": 1},
        "ParameterRanges": {"CategoricalParameterRanges": [{"Name": "x", "Values": ["1", "2", "3"]}]},
    },
    "TrainingJobDefinition": {
        "StaticHyperParameters": {"epochs": "2", "sagemaker_job_name": "old", "a": "1", "b": "1", "c": "1", "d": "1"}
    },
}


def changed(fixed: dict[str, str], ranges: dict[str, Any] | None = None, metric: str = "loss") -> dict[str, Any]:
    request = copy.deepcopy(REQUEST)
    request["TrainingJobDefinition"]["StaticHyperParameters"] |= fixed
    config = request["HyperParameterTuningJobConfig"]
    config["HyperParameterTuningJobObjective"]["MetricName"] = metric
    config["ParameterRanges"] = ranges if ranges is not None else config["ParameterRanges"]
    return request


def test_grid_has_only_the_combinations_that_no_parent_has_completed() -> None:
    done = [whole(REQUEST, {"x": "2"})]
    own = changed({"sagemaker_job_name": "new"})
    assert most_trials(own, done) == 2
    assert [trial_values(own, number, [], "s", done)["x"] for number in range(2)] == ["1", "3"]
    # Another fixed value makes each combination another one.
    assert most_trials(changed({"epochs": "9"}), done) == 3


def test_random_draw_is_none_of_a_parent() -> None:
    own = changed({})
    own["HyperParameterTuningJobConfig"] |= {"Strategy": "Random", "RandomSeed": 3}
    done = [whole(REQUEST, {"x": one}) for one in ("1", "3")]
    assert {trial_values(own, number, [], "s", done)["x"] for number in range(20)} == {"2"}


def integers(name: str = "x") -> dict[str, Any]:
    return {"IntegerParameterRanges": [{"Name": name, "MinValue": "1", "MaxValue": "3"}]}


@pytest.mark.parametrize(
    ("status", "request_", "message"),
    [
        ("InProgress", changed({}), "parent is in status InProgress"),
        ("Stopping", changed({}), "parent is in status Stopping"),
        ("Completed", changed({}, metric="other"), "objective metric must be the same"),
        ("Completed", changed({"more": "1"}), "has 7: the number must be the same"),
        ("Completed", changed({}, integers()), "'x' has another type"),
        # Two for each of six static values.
        (
            "Completed",
            changed({"a": "2", "b": "2", "c": "2", "d": "2", "epochs": "3", "sagemaker_job_name": "new"}),
            "There are 12 changes",
        ),
    ],
)
def test_parent_that_sagemaker_does_not_allow_is_refused(status: str, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        check_parent(request_, "parent", status, REQUEST)


def test_ten_changes_and_a_stopped_parent_are_allowed() -> None:
    check_parent(changed({"a": "2", "b": "2", "c": "2", "d": "2", "epochs": "3"}), "parent", "Stopped", REQUEST)
