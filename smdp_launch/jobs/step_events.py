"""What the runs of a job reported of their steps, from the history of the current folder and the runs' logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.logs.read import read_events
from smdp_launch.jobs.records.history import LOCAL, Launch, launches
from smdp_launch.jobs.service.clients import Clients, connection, tell_nobody
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import describe
from smdp_launch.scaling.measured import RunEvents, bytes_of, step_of

#: Runs of a job that are looked at before it counts as one without steps.
_MOST_RUNS = 5


@dataclass
class _Reading:
    steps: list[tuple[float, int]]
    exchanged: int = 0
    ranks: int | None = None

    def see(self, event: JobEvent) -> None:
        if event.name == "step":
            found = step_of(event.fields, event.time_ms / 1000)
            if found is not None:
                self.steps.append(found)
        elif event.name == "engine" and event.worker == 0:
            self.exchanged += bytes_of(event.fields)
        elif event.name == "workers_started":
            size = event.fields.get("world_size")
            self.ranks = size if isinstance(size, int) and not isinstance(size, bool) else self.ranks


def runs_of(job_file: Path) -> Iterator[Launch]:
    """Of this file from the current folder, the last first; a rehearsal is a run on this machine."""
    wanted = job_file.absolute()
    found = (one for one in reversed(launches()) if Path(one.job_file).absolute() == wanted)
    return (one for _, one in zip(range(_MOST_RUNS), found, strict=False))


def run_events(launch: Launch, tell: Callable[[Waiting], None] = tell_nobody) -> RunEvents:
    """Raises:
    ServiceProblem: the service does not know the job, or refused.
    EnvironmentProblem: no credentials, or the local cloud that it ran in is gone.
    """
    with connection(launch.where, launch.state)() as clients:
        clients.tell = tell
        return _read(clients, launch)


def _read(clients: Clients, launch: Launch) -> RunEvents:
    described = describe(clients, launch.job)
    reading = _Reading([])
    for event in read_events(clients, launch.job):
        reading.see(event)
    instance_type = None if launch.where == LOCAL else described.instance_type or "unknown instance type"
    return RunEvents(launch.job, instance_type, reading.ranks, reading.steps, reading.exchanged or None)
