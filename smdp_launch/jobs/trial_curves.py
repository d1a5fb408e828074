"""The loss of a sweep's trials over time, from the events in their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.logs.read import read_events
from smdp_launch.jobs.run import metrics_of
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import SINGLE_TRY
from smdp_launch.jobs.sweeps import SweepState
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.summary import main_metric

#: Logs that are read: of the best trials.
MOST_TRIALS = 50


@dataclass(frozen=True)
class LossCurves:
    """Args:
    metric: the name of the loss in the events; None if no trial reported one.
    points: by job: seconds since the trial's first event, and the loss.
    unread: of the logs that cannot be read, by job: why.
    """

    metric: str | None = None
    points: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def read_curves(clients: Clients, sweep: SweepState) -> LossCurves:
    """Read the logs of the best trials. A log that cannot be read is no error, and is not tried again."""
    once = replace(clients, retry_policy=SINGLE_TRY)
    found: dict[str, RunMetrics] = {}
    unread: dict[str, str] = {}
    for one in sweep.trials[:MOST_TRIALS]:
        try:
            found[one.job] = metrics_of(read_events(once, one.job))
        except SmdpError as error:
            unread[one.job] = str(error)
    metric = next((name for one in found.values() if (name := main_metric(one)) is not None), None)
    points = {job: _points(one, metric) for job, one in found.items() if metric is not None and metric in one.metrics}
    return LossCurves(metric, {job: one for job, one in points.items() if one}, unread)


def _points(metrics: RunMetrics, metric: str) -> list[tuple[float, float]]:
    began = metrics.began or 0.0
    return sorted((one.time - began, one.mean) for one in metrics.metrics[metric])
