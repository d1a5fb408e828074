"""Step reports of a job's earlier runs: from the history of the current folder and the logs of the runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.logs.read import read_events
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.records.lines import Launch
from smdp_launch.jobs.service.clients import Clients, connection, ignore_waiting
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import describe
from smdp_launch.scaling.measured import RunEvents, bytes_of, step_of


@dataclass
class _Reading:
    steps: list[tuple[float, int]]
    exchanged: int = 0
    ranks: int | None = None

    def add(self, event: JobEvent) -> None:
        if event.name == "step":
            step = step_of(event.fields, event.time_ms / 1000)
            if step is not None:
                self.steps.append(step)
        elif event.name == "engine" and event.worker == 0:
            self.exchanged += bytes_of(event.fields)
        elif event.name == "workers_started":
            size = event.fields.get("world_size")
            self.ranks = size if isinstance(size, int) and not isinstance(size, bool) else self.ranks


def run_events(launch: Launch, on_waiting: Callable[[Waiting], None] = ignore_waiting) -> RunEvents:
    """Read the step reports of one run.

    Raises:
        ServiceProblem: the service does not know the job, or refused.
        EnvironmentProblem: no credentials, or the local cloud of the run no longer exists.
    """
    with connection(launch.where, launch.state)() as clients:
        clients.on_waiting = on_waiting
        return _read(clients, launch)


def _read(clients: Clients, launch: Launch) -> RunEvents:
    described = describe(clients, launch.job)
    reading = _Reading([])
    for event in read_events(clients, launch.job):
        reading.add(event)
    instance_type = None if launch.where == LOCAL else described.instance_type or "unknown instance type"
    return RunEvents(launch.job, instance_type, reading.ranks, reading.steps, reading.exchanged or None)
