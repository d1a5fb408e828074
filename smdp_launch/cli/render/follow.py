"""A running job for a person: lines by host and rank, the status, and a progress bar from step events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, TypeGuard

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.catalog.faults import EVENT as FAULT
from smdp_launch.catalog.instances import instance
from smdp_launch.cli.render.checkpoints import told_news
from smdp_launch.cli.render.next import command_for_job, say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointsStalled, CheckpointsUnseen
from smdp_launch.jobs.follow import Ended, Reached, Seen, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.service.error_kinds import Trouble
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import Description
from smdp_launch.plain_text import without_controls
from smdp_launch.planning.plan import Plan
from smdp_launch.rehearsals.rehearsal import told_fault
from smdp_launch.units import duration

_HOST_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
#: Where there is no terminal to redraw a bar in, a line for each tenth of the way, and one a minute on a long one.
_TENTHS = 10
_LONGEST_QUIET = 60.0  # seconds between two such lines
_SHORT_OUTAGE = 3.0  # seconds; a shorter one is worth no line
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})


@dataclass(frozen=True)
class Shape:
    """Hosts and workers of a job, for columns and colours."""

    hosts: tuple[str, ...]
    workers_per_host: int

    @classmethod
    def of_plan(cls, plan: Plan) -> Shape:
        return cls(tuple(sorted({one.host for one in plan.ranks})), plan.workers_per_host)

    @classmethod
    def of_description(cls, found: Description) -> Shape:
        known = instance(found.instance_type) if found.instance_type is not None else None
        workers = found.workers_per_host or (known.gpus if known is not None else 0)
        return cls(tuple(f"algo-{number}" for number in range(1, found.hosts + 1)), workers or 1)

    def name(self, host: str, rank: int | None) -> str:
        """Who speaks, as wide as the longest of them."""
        width = max(len(one) for one in self.hosts) + 1 + len(str(len(self.hosts) * self.workers_per_host - 1))
        return f"{host if rank is None else f'{host}:{rank}':<{width}}"

    def style(self, host: str, rank: int | None) -> str:
        """A colour a host; workers of one host alternate between plain and bold, the entrypoint is dim."""
        index = self.hosts.index(host) if host in self.hosts else 0
        colour = _HOST_COLOURS[index % len(_HOST_COLOURS)]
        if rank is None:
            return f"dim {colour}"
        return f"bold {colour}" if rank % self.workers_per_host % 2 else colour


class FollowView:
    """Draws to standard output; a bar only if that is a terminal that may be told to move its cursor.

    Args:
        shape: may be given later, before the first line.
        quiet: leave out the hosts' lines and what they start.
    """

    asks = True

    def __init__(self, shape: Shape | None, console: Console | None = None, *, quiet: bool = False) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._quiet = quiet
        self.shape = shape or Shape(("algo-1",), 1)
        self._started = time.monotonic()
        self._created: int | None = None  # milliseconds since 1970, of the first status
        self._cursor: int | None = None  # the same, of the last line
        self._waiting: str | None = None  # what was last told of an outage
        self._tenth = -1
        self._told = self._started  # when the last line of a step was printed
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if self._console.is_terminal and self._console.color_system is not None:
            self._bar = Progress(
                TextColumn("{task.description}", style="bold", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[told]}", markup=False),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> FollowView:
        if self._bar is not None:
            self._task = self._bar.add_task("Pending", total=None, told="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The bar away, so that a question can be asked."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def say(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def left(self, job: str, stopping: bool) -> None:
        self.say(f"left {job}, which {'is being stopped' if stopping else 'goes on'}")
        say_next(command_for_job("follow", job))

    def show(self, seen: Seen) -> None:
        if isinstance(seen, LogLine):
            self._cursor = max(seen.time_ms, self._cursor or 0)
            if not self._quiet:
                self._line(seen)
        elif isinstance(seen, StatusChanged):
            self._status(seen)
        elif isinstance(seen, JobEvent):
            self._cursor = max(seen.time_ms, self._cursor or 0)
            self._event(seen)
        elif isinstance(seen, Waiting):
            self._wait(seen)
        elif isinstance(seen, Reached):
            self._reached(seen)
        elif isinstance(seen, CheckpointsStalled | CheckpointKept | CheckpointsUnseen):
            self._console.print(told_news(seen))
        elif isinstance(seen, Ended) and self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=seen.outcome.status)

    def _line(self, line: LogLine) -> None:
        mark = f"late, {clock_time(line.time_ms)} | " if line.late else ""
        text = Text(f"{self.shape.name(line.host, line.rank)} | {mark}", self.shape.style(line.host, line.rank))
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
        """At once where it stays in the bar; as a line when it lasts, and once a minute."""
        since, told = clock_time(int(waiting.since * 1000)), without_controls(f"{waiting.what}: {waiting.reason}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, told=f"waiting since {since}")
        is_short = waiting.trouble is Trouble.TEMPORARY and time.time() - waiting.since < _SHORT_OUTAGE
        if is_short or (told == self._waiting and time.monotonic() - self._told < _LONGEST_QUIET):
            return
        self._waiting, self._told = told, time.monotonic()
        cursor = f", the log is here up to {clock_time(self._cursor)}" if self._cursor is not None else ""
        self._console.print(Text(f"waiting since {since}{cursor}:\n  {told}", "bold yellow"))

    def _reached(self, seen: Reached) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, told="")
        if self._waiting is not None:
            self._waiting = None
            self._console.print(Text(f"the service answers again, after {duration(round(seen.lasted))}", "bold"))

    def _event(self, event: JobEvent) -> None:
        if event.name == "step":
            self._step(event.fields)
        elif event.name == "worker_exit":
            who, error = f"rank {event.fields.get('rank')} on {event.host}", str(event.fields.get("error"))
            told = error if error.startswith(who) else f"{who} failed: {error}"
            self._console.print(Text(told, "bold red"))
        elif event.name == FAULT:
            self._console.print(Text(f"rehearsal: {told_fault(event)}", "bold magenta"))
        elif event.name == "workers_started" and not self._quiet:
            ranks = event.fields.get("ranks")
            master = event.fields.get("master")
            self._console.print(Text(f"{event.host} started ranks {ranks}; rank 0 listens at {master}", "dim"))

    def _step(self, fields: Mapping[str, Any]) -> None:
        done, total = fields.get("step"), fields.get("steps")
        if not (_is_count(done) and _is_count(total) and total > 0):
            return
        told = "  ".join([f"step {done}/{total}", *metrics(fields)])
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total, told=told)
        elif done * _TENTHS // total > self._tenth or time.monotonic() - self._told >= _LONGEST_QUIET:
            self._tenth = done * _TENTHS // total
            self._told = time.monotonic()
            self._console.print(Text(told, "bold"))


def clock_time(time_ms: int) -> str:
    """UTC, as CloudWatch and SageMaker show it."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%H:%M:%S} UTC"


def _is_count(value: object) -> TypeGuard[int]:
    """A number of steps that can be drawn; a script may send anything."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def metrics(fields: Mapping[str, Any]) -> list[str]:
    """``name value`` for each field of an event that is not the envelope's."""
    return [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in fields.items()
        if name not in _ENVELOPE
    ]
