"""Follow events of a job for a program: JSON lines (docs/reference/json.md), each printed as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import click

from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.render.job.status import outcome_json
from smdp_launch.jobs.checkpoints.watch import CheckpointEvent, CheckpointKept, CheckpointsStalled, CheckpointsUnseen
from smdp_launch.jobs.follow import FollowEvent, ServiceRecovered, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.resume import Resumption
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.run_metrics.summary import numbers_json

#: Version of the lines; raised when a field changes its meaning or is removed.
_VERSION = 1


class EventView:
    """Prints what `FollowView` draws as JSON.

    Args:
        where: the region that runs the job, or ``local``.
        quiet: omit the hosts' logs.
        created: whether this command created the job. If not, the first line is printed when the service has
            described the job.
    """

    is_interactive = False  # a question would break the JSON

    def __init__(self, job: str, where: str, *, quiet: bool = False, created: bool = False) -> None:
        self._job = job
        self._where = where
        self._quiet = quiet
        self._created = created
        self._announced = False
        self.layout: object = None  # unused: for the interface of `FollowView`

    def __enter__(self) -> EventView:
        if self._created:
            self._announce()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def note(self, text: str) -> None:
        _write("note", text=text)

    def detached(self, job: str, stopping: bool) -> None:
        _write("left", job=job, stopping=stopping)

    def show(self, event: FollowEvent) -> None:
        if not isinstance(event, Waiting):  # all other events follow a description
            self._announce()
        if isinstance(event, LogLine):
            if not self._quiet:
                _write("line", **_place(event), rank=event.rank, text=event.text)
        elif isinstance(event, JobEvent):
            _write("event", **_place(event), name=event.name, fields=dict(event.fields))
        elif isinstance(event, StatusChanged):
            change = {"status": event.status, "message": event.message, "before": event.before}
            _write("status", time=_iso(event.time_ms / 1000), **change, lasted_seconds=event.lasted)
        elif isinstance(event, Waiting):
            print_waiting(event.what, event.reason, event.since, event.again_in)
        elif isinstance(event, ServiceRecovered):
            _write("reached", lasted_seconds=event.lasted)
        elif isinstance(event, CheckpointsStalled | CheckpointKept | CheckpointsUnseen):
            _write_news(event)

    def end(self, result: FollowResult) -> None:
        failure = None
        if result.traceback is not None:
            (host, rank), lines = result.traceback
            failure = {"host": host, "rank": rank, "lines": list(lines)}
        known = {"result": dict(result.results), "traceback": failure, "numbers": numbers_json(result.metrics)}
        outcome = outcome_json(result.outcome)
        _write("ended", job=self._job, outcome=outcome, has_all_lines=result.has_all_lines, **known)

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            print_job(self._job, self._where)


def print_job(job: str, where: str) -> None:
    """Print the job that the following lines are about. The job exists."""
    _write("job", job=job, where=where)


def print_waiting(what: str, reason: str, since: float, again_in: float) -> None:
    """Print what cannot be done until the next try.

    Args:
        since: seconds since 1970.
        again_in: seconds.
    """
    _write("waiting", what=what, reason=reason, since=_iso(since), again_in_seconds=again_in)


def print_resumption(prepared: Resumption) -> None:
    listing = prepared.checkpoints
    checkpoints = None
    if listing is not None:
        checkpoints = {"location": listing.where, "files": listing.files, "newest": listing.newest.isoformat()}
    _write("resumption", job=prepared.job, resumes=prepared.old.job, checkpoints=checkpoints)


def _write_news(news: CheckpointEvent) -> None:
    if isinstance(news, CheckpointsUnseen):
        _write("checkpoints_unseen", location=news.where, reason=news.reason)
        return
    known = {"newest": news.newest, "files": news.files, "bytes": news.size}
    lasted = {"location": news.where, "lasted_seconds": news.lasted}
    if isinstance(news, CheckpointKept):
        _write("checkpoint_kept", time=_iso(news.time_ms / 1000), **lasted, **known)
        return
    limits = {"limit_seconds": news.limit, "longest_gap_seconds": news.longest}
    steps = {"step_then": news.step_then, "step_now": news.step_now}
    _write("checkpoints_stalled", since=_iso(news.time_ms / 1000), **lasted, **limits, **known, **steps)


def _place(event: LogLine | JobEvent) -> dict[str, Any]:
    return {"time": _iso(event.time_ms / 1000), "host": event.host, "late": event.late}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _write(kind: str, **fields: Any) -> None:
    # ASCII, because some readers end a line at other characters too.
    click.echo(json.dumps({"follow": _VERSION, "seen": kind, **fields}, allow_nan=False))
