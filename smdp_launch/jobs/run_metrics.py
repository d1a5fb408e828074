"""The series of a job, from its events until now."""

from __future__ import annotations

from smdp_launch.jobs.logs.read import read_events
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.status.description import describe
from smdp_launch.run_metrics.run import RunMetrics


def read_metrics(clients: Clients, job: str) -> RunMetrics:
    """Read the events of a job that runs or has ended.

    Raises:
        ServiceProblem: the service does not know the job, or refused.
        EnvironmentProblem: no credentials, or the local cloud of the job no longer exists.
    """
    describe(clients, job)  # fails for an unknown job, whose log would be empty
    metrics = RunMetrics()
    for event in read_events(clients, job):
        metrics.add(event.name, event.fields, event.host, event.worker, event.time_ms / 1000)
    return metrics
