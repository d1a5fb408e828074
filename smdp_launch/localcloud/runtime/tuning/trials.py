"""The trials of a tuning job: their requests, their states, the best one, and those that early stopping ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from smdp_launch.localcloud import job_state
from smdp_launch.localcloud.layout import JobFolder, StateFolder
from smdp_launch.localcloud.runtime import meter
from smdp_launch.localcloud.runtime.tuning.values import Values, definition_of, objective_of
from smdp_launch.localcloud.tuning_state import TrialRecord

#: The hyperparameter that the service adds to each trial.
OBJECTIVE = "_tuning_objective_metric"
_FEWEST = 3  # completed trials before early stopping compares with their median

#: Fields of a definition that are no fields of a training job.
_OF_DEFINITION = ("StaticHyperParameters", "DefinitionName", "TuningObjective", "HyperParameterRanges")


def trial_request(request: Mapping[str, Any], name: str, values: Values, tags: Mapping[str, str]) -> dict[str, Any]:
    """The CreateTrainingJob request of a trial."""
    definition = definition_of(request)
    own = {key: value for key, value in definition.items() if key not in _OF_DEFINITION}
    if "HyperParameterTuningResourceConfig" in own:
        own["ResourceConfig"] = _resources(own.pop("HyperParameterTuningResourceConfig"))
    fixed = definition.get("StaticHyperParameters", {})
    metric = str(objective_of(request)["MetricName"])
    made = {**own, "TrainingJobName": name, "HyperParameters": {**fixed, **values, OBJECTIVE: metric}}
    return {**made, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else made


def _resources(flexible: Mapping[str, Any]) -> dict[str, Any]:
    """ResourceConfig of HyperParameterTuningResourceConfig, which the SageMaker SDK sends. Of several types the first
    is taken."""
    own = {name: value for name, value in flexible.items() if name not in ("AllocationStrategy", "InstanceConfigs")}
    return {**own, **flexible.get("InstanceConfigs", [{}])[0]}


def look(state: StateFolder, record: TrialRecord, metric: str) -> TrialRecord:
    """The trial as it is now; the record itself once it has ended, or if its job was deleted."""
    if record.status is not None:
        return record
    found = job_state.read(JobFolder(state.jobs / record.name).state)
    if found is None:
        return record
    values = [one["Value"] for one in found.metrics if one["MetricName"] == metric]
    status = found.status
    if not found.has_ended and JobFolder(state.jobs / record.name).stop.exists():
        status = "Stopping"
    return replace(
        record,
        status=status,
        started=found.started,
        ended=found.ended,
        failure=found.failure,
        value=values[-1] if values and found.has_ended else None,
    )


def best(trials: Iterable[TrialRecord], goal: str) -> TrialRecord | None:
    """The completed trial with the best value; of equal ones the first."""
    ended = [one for one in trials if one.status == "Completed" and one.value is not None]
    if not ended:
        return None
    return (max if goal == "Maximize" else min)(ended, key=lambda one: one.value if one.value is not None else 0.0)


def to_stop_early(state: StateFolder, trials: Sequence[TrialRecord], metric: str, goal: str) -> list[TrialRecord]:
    """Running trials whose last value is worse than the median of the running averages that the completed trials had
    after as many values: the rule of the developer guide's page "Stop Training Jobs Early"."""
    completed = [_values(state, one.name, metric) for one in trials if one.status == "Completed"]
    stopped = []
    for one in trials:
        own = _values(state, one.name, metric) if one.status == "InProgress" else []
        averages = [statistics.fmean(each[: len(own)]) for each in completed if len(each) >= len(own)] if own else []
        if len(averages) >= _FEWEST:
            median = statistics.median(averages)
            if own[-1] > median if goal == "Minimize" else own[-1] < median:
                stopped.append(one)
    return stopped


def _values(state: StateFolder, name: str, metric: str) -> list[float]:
    return [one.value for one in meter.points(JobFolder(state.jobs / name)) if one.name == metric]
