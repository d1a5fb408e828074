"""The parents of a tuning job: the names, and what their trials tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud import tuning_state
from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.layout import StateFolder, TuningFolder
from smdp_launch.localcloud.runtime.tuning.trials import look
from smdp_launch.localcloud.runtime.tuning.values import Values, objective_of, whole

IDENTICAL = "IdenticalDataAndAlgorithm"


def parent_names(request: Mapping[str, Any]) -> list[str]:
    parents = request.get("WarmStartConfig", {}).get("ParentHyperParameterTuningJobs", [])
    return [one["HyperParameterTuningJobName"] for one in parents]


def completed(state: StateFolder, request: Mapping[str, Any]) -> list[Values]:
    """All hyperparameters of each completed trial of the parents. With TransferLearning there are none: a result for
    other data or another image is not one for these."""
    found: list[Values] = []
    if request.get("WarmStartConfig", {}).get("WarmStartType") != IDENTICAL:
        return found
    for name in parent_names(request):
        folder = TuningFolder(state.tunings / name)
        own, parent = tuning_state.read(folder.state), read_json(folder.request)
        if own is None or not parent:
            continue
        trials = [look(state, one, objective_of(parent)["MetricName"]) for one in own.trials]
        found += [whole(parent, one.values) for one in trials if one.status == "Completed" and one.value is not None]
    return found
