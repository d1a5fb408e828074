"""A running job for a person: logs by host and rank, the status, and a progress bar from step events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, TypeGuard

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from smdp_launch.catalog.faults import EVENT as FAULT
from smdp_launch.catalog.instances import instance
from smdp_launch.cli.render.job.checkpoints import news_text
from smdp_launch.cli.render.job.progress import AgeColumn, NumbersColumn, ShownRun
from smdp_launch.cli.render.next_step import command_for_job, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointsStalled, CheckpointsUnseen
from smdp_launch.jobs.follow import Ended, FollowEvent, ServiceRecovered, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import Description
from smdp_launch.plain_text import without_controls
from smdp_launch.planning.plan import Plan
from smdp_launch.rehearsals.texts import describe_fault
from smdp_launch.run_metrics.network import NetworkReport
from smdp_launch.run_metrics.saves import SaveMetrics
from smdp_launch.units import duration

_HOST_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
#: Without a terminal, progress is a line for each tenth of the steps, and at least one a minute.
_TENTHS = 10
_PROGRESS_INTERVAL = 60.0  # seconds
_SHORT_OUTAGE = 3.0  # seconds; a shorter outage is not printed
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})


@dataclass(frozen=True)
class JobLayout:
    """The hosts and workers of a job, for the columns and colours of its logs."""

    hosts: tuple[str, ...]
    workers_per_host: int

    @classmethod
    def of_plan(cls, plan: Plan) -> JobLayout:
        return cls(tuple(sorted({one.host for one in plan.ranks})), plan.workers_per_host)

    @classmethod
    def of_description(cls, description: Description) -> JobLayout:
        known = instance(description.instance_type) if description.instance_type is not None else None
        workers = description.workers_per_host or (known.gpus if known is not None else 0)
        return cls(tuple(f"algo-{number}" for number in range(1, description.hosts + 1)), workers or 1)

    def name(self, host: str, rank: int | None) -> str:
        """The writer of a line, padded to the longest name."""
        width = max(len(one) for one in self.hosts) + 1 + len(str(len(self.hosts) * self.workers_per_host - 1))
        return f"{host if rank is None else f'{host}:{rank}':<{width}}"

    def style(self, host: str, rank: int | None) -> str:
        """A colour for each host. Workers of a host alternate between plain and bold; the entrypoint is dim."""
        index = self.hosts.index(host) if host in self.hosts else 0
        colour = _HOST_COLOURS[index % len(_HOST_COLOURS)]
        if rank is None:
            return f"dim {colour}"
        return f"bold {colour}" if rank % self.workers_per_host % 2 else colour


class FollowView:
    """Draws on standard output; with a progress bar only on a terminal with cursor control.

    Args:
        layout: can be set later, before the first log line.
        quiet: omit the hosts' logs and the workers that they start, and show the network's problems.
        run: the numbers beside the bar, which the caller keeps up to date.
        region: of a job on AWS, for the command that follows it again.
    """

    is_interactive = True

    def __init__(
        self,
        layout: JobLayout | None,
        console: Console | None = None,
        *,
        quiet: bool = False,
        run: ShownRun | None = None,
        region: str | None = None,
    ) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._quiet = quiet
        self._run = run or ShownRun()
        self._region = region
        self.layout = layout or JobLayout(("algo-1",), 1)
        self._started = time.monotonic()
        self._created: int | None = None  # milliseconds since 1970, of the first status
        self._cursor: int | None = None  # the same, of the last line
        self._waiting: str | None = None  # the last message about an outage
        self._saves = SaveMetrics()
        self._tenth = -1
        self._printed = self._started  # time of the last line about steps or an outage
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal and self._console.color_system is not None:
            self._bar = Progress(
                TextColumn("{task.description}", style="bold", markup=False),
                BarColumn(bar_width=None),
                NumbersColumn(self._run, self._console),
                AgeColumn(self._run),
                console=self._console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> FollowView:
        if self._bar is not None:
            self._task = self._bar.add_task("Pending", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar during a question."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def note(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def detached(self, job: str, stopping: bool) -> None:
        self.note(f"detached from {job}, which {'is stopping' if stopping else 'continues to run'}")
        print_next(command_for_job("follow", job, self._region))

    def show(self, event: FollowEvent) -> None:
        if isinstance(event, LogLine):
            self._cursor = max(event.time_ms, self._cursor or 0)
            if not self._quiet:
                self._line(event)
        elif isinstance(event, StatusChanged):
            self._status(event)
        elif isinstance(event, JobEvent):
            self._cursor = max(event.time_ms, self._cursor or 0)
            self._event(event)
        elif isinstance(event, Waiting):
            self._wait(event)
        elif isinstance(event, ServiceRecovered):
            self._reached(event)
        elif isinstance(event, CheckpointsStalled | CheckpointKept | CheckpointsUnseen):
            self._console.print(news_text(event))
        elif isinstance(event, Ended) and self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=event.outcome.status)

    def _line(self, line: LogLine) -> None:
        mark = f"late, {clock_time(line.time_ms)} | " if line.late else ""
        text = Text(f"{self.layout.name(line.host, line.rank)} | {mark}", self.layout.style(line.host, line.rank))
        text.append_text(Text.from_ansi(line.coloured or line.text))
        self._console.print(text)

    def _status(self, change: StatusChanged) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=change.status)
        self._created = change.time_ms if self._created is None else self._created
        elapsed = (change.time_ms - self._created) / 1000
        message = f": {change.message}" if change.message else ""
        took = f" ({change.before} took {change.lasted:.1f} s)" if change.lasted is not None else ""
        self._console.print(Text(f"{elapsed:6.1f} s  {change.status}{message}{took}", "bold"))

    def _wait(self, waiting: Waiting) -> None:
        """Show the outage in the bar at once, and as a line if it lasts, repeated once a minute."""
        since = clock_time(int(waiting.since * 1000))
        message = without_controls(f"{waiting.what}: {waiting.reason}")
        self._run.waiting = f"waiting since {since}"
        is_short = waiting.error_kind is ErrorKind.TEMPORARY and time.time() - waiting.since < _SHORT_OUTAGE
        if is_short or (message == self._waiting and time.monotonic() - self._printed < _PROGRESS_INTERVAL):
            return
        self._waiting, self._printed = message, time.monotonic()
        cursor = f"; logs received up to {clock_time(self._cursor)}" if self._cursor is not None else ""
        self._console.print(Text(f"waiting since {since}{cursor}:\n  {message}", "bold yellow"))

    def _reached(self, recovery: ServiceRecovered) -> None:
        self._run.waiting = ""
        if self._waiting is not None:
            self._waiting = None
            self._console.print(Text(f"the service responds again after {duration(round(recovery.lasted))}", "bold"))

    def _event(self, event: JobEvent) -> None:
        if event.name == "step":
            self._step(event.fields)
        elif event.name == "worker_exit":
            who, error = f"rank {event.fields.get('rank')} on {event.host}", str(event.fields.get("error"))
            failure = error if error.startswith(who) else f"{who} failed: {error}"
            self._console.print(Text(failure, "bold red"))
        elif event.name == "network" and self._quiet:  # else the log has the same lines
            self._network(NetworkReport.of(event.fields))
        elif event.name == "checkpoint_saved" and self._quiet:  # else the log has the same line
            self._saved(event.fields)
        elif event.name == FAULT:
            self._console.print(Text(f"rehearsal: {describe_fault(event)}", "bold magenta"))
        elif event.name == "workers_started" and not self._quiet:
            ranks = event.fields.get("ranks")
            master = event.fields.get("master")
            self._console.print(Text(f"{event.host} started ranks {ranks}; rank 0 listens at {master}", "dim"))

    def _network(self, report: NetworkReport) -> None:
        summary, *problems = report.lines()
        self._console.print(Text(f"network: {summary}", "bold yellow" if problems else "dim"))
        for problem in problems:
            self._console.print(Text(f"  {problem}", "yellow"))

    def _saved(self, fields: Mapping[str, Any]) -> None:
        """Show once whether a save fits into a spot notice, from the first one."""
        if not self._saves.saves and self._saves.add(fields):
            style = "dim" if self._saves.rate_needed is not None else "bold yellow"
            self._console.print(Text(f"checkpoints: {self._saves.text()}", style))

    def _step(self, fields: Mapping[str, Any]) -> None:
        done, total = fields.get("step"), fields.get("steps")
        if not (_is_count(done) and _is_count(total) and total > 0):
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif done * _TENTHS // total > self._tenth or time.monotonic() - self._printed >= _PROGRESS_INTERVAL:
            self._tenth = done * _TENTHS // total
            self._printed = time.monotonic()
            detail = "  ".join([f"step {done}/{total}", *metrics(fields)])
            self._console.print(Text(self._run.line(detail), "bold"))


def clock_time(time_ms: int) -> str:
    """The time in UTC, as in CloudWatch and SageMaker."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%H:%M:%S} UTC"


def _is_count(value: object) -> TypeGuard[int]:
    """Whether the value is a valid number of steps: a script may send anything."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def metrics(fields: Mapping[str, Any]) -> list[str]:
    """``name value`` for each field that is not part of every event."""
    return [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in fields.items()
        if name not in _ENVELOPE
    ]
