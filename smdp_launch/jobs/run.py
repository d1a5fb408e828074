"""A run of a job with its numbers: the service's description of the job, its events and its price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.errors import SmdpError
from smdp_launch.jobs.input_record import record_input
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.logs.read import read_events
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import SINGLE_TRY
from smdp_launch.jobs.status.cost import price_of, usd
from smdp_launch.jobs.status.description import Description, describe, describe_training_job, description, end_of
from smdp_launch.run_metrics.network import NetworkReport
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.steady import has_step

#: The status needs the events of this time only. If there is no step in it, those of the longer time. If there is none
#: either although the workers are measured, the job may hang, and only the log of its last step has the report: ten
#: times as long each time, so that the part that is read follows the time without a step and not the job's age.
#: The network is probed at the start of training: later events are not searched for the result.
_START, _BEFORE_START = timedelta(minutes=5), timedelta(minutes=2)
_RECENT, _LONGER, _GROWTH = timedelta(minutes=2), timedelta(minutes=20), 10


@dataclass(frozen=True)
class Run:
    """Args:
    where: the AWS region, or ``local``.
    price: USD an hour of one host; None if it is unknown, or for a local run.
    request: the service's answer to DescribeTrainingJob, with the settings of the request.
    has_all_lines: False if reading the log ended before its end.
    """

    where: str
    description: Description
    metrics: RunMetrics
    price: float | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    has_all_lines: bool = True

    @property
    def name(self) -> str:
        return self.description.job

    @property
    def usd(self) -> float | None:
        return usd(self.description, self.price)


def read_run(clients: Clients, job: str, where: str, prices: PriceTable | None = None) -> Run:
    """Read the whole log of a job.

    Raises:
        ServiceProblem: the service refused, does not know the job, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    request = describe_training_job(clients, job)
    described = description(request, datetime.now(timezone.utc))
    metrics = metrics_of(read_events(clients, job))
    metrics.ended = metrics.ended or described.outcome is not None
    record_input(job, metrics)
    return Run(where, described, metrics, price_of(described, where, prices), request)


def read_metrics(clients: Clients, job: str) -> RunMetrics:
    """The numbers of a job that runs or has ended; raises as `read_run` does."""
    described = describe(clients, job)  # fails for an unknown job, whose log would be empty
    metrics = metrics_of(read_events(clients, job))
    metrics.ended = metrics.ended or described.outcome is not None
    record_input(job, metrics)
    return metrics


def metrics_of(events: Iterable[JobEvent]) -> RunMetrics:
    metrics = RunMetrics()
    for event in events:
        add_event(metrics, event)
    return metrics


def add_event(metrics: RunMetrics, event: JobEvent) -> None:
    metrics.add(event.name, event.fields, event.host, event.worker, event.time_ms / 1000)


def recent_metrics(clients: Clients, described: Description) -> RunMetrics | SmdpError:
    """The numbers from the last minutes of a job's log, of a hanging job from its last step on; or the error of reading
    it: a job whose log cannot be read still has a status. Nothing is retried."""
    once, end, before = replace(clients, retry_policy=SINGLE_TRY), end_of(described), _RECENT
    try:
        while True:
            metrics = metrics_of(read_events(once, described.job, end - before))
            metrics.ended = metrics.ended or described.outcome is not None
            windows = [one for rank in metrics.ranks.values() for one in rank.timing.windows]
            has_progress = metrics.step is not None or any(map(has_step, windows))
            has_all = end - before < described.created or (before >= _LONGER and not windows)
            if has_progress or metrics.hang is not None or has_all:
                return metrics
            before *= _GROWTH
    except SmdpError as error:
        return error


def network_of(clients: Clients, described: Description, recent: RunMetrics | SmdpError) -> NetworkReport | None:
    """What the probe of the network found at the job's start; None if it is not known, or the log cannot be read.

    Args:
        recent: the numbers of the last minutes, which have it in a job that has just started.
    """
    if isinstance(recent, SmdpError) or described.hosts < 2:
        return None
    began = next((one.began for one in described.steps if one.status == "Training"), None)
    if recent.network is not None or began is None:
        return recent.network
    once = replace(clients, retry_policy=SINGLE_TRY)
    until = (began + _START).timestamp() * 1000
    try:
        for event in read_events(once, described.job, began - _BEFORE_START):
            if event.name == "network" and event.worker is None:
                return NetworkReport.of(event.fields)
            if event.time_ms > until:
                break
    except SmdpError:
        return None
    return None
