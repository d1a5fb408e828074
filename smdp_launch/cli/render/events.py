"""A job that is followed, for a program: one JSON document a line (docs/json.md), each written as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import click

from smdp_launch.cli.render.status import outcome_document
from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointNews, CheckpointsStalled, CheckpointsUnseen
from smdp_launch.jobs.follow import Reached, Seen, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.logs.tracebacks import Worker
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.resume import Resumption
from smdp_launch.jobs.service.retry_policy import Waiting

#: Version of the lines; raised when a member changes its meaning or goes.
_VERSION = 1


class EventView:
    """What `FollowView` draws, as documents.

    Args:
        where: the region that runs the job, or ``local``.
        quiet: leave out the hosts' lines.
        created: by this command, so that the job is there; else it is told of once the service has described it.
    """

    asks = False  # no question may stand between the documents

    def __init__(self, job: str, where: str, *, quiet: bool = False, created: bool = False) -> None:
        self._job = job
        self._where = where
        self._quiet = quiet
        self._created = created
        self._told = False
        self.shape: object = None  # which no document is drawn after

    def __enter__(self) -> EventView:
        if self._created:
            self._tell()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        _write("note", text=text)

    def left(self, job: str, stopping: bool) -> None:
        _write("left", job=job, stopping=stopping)

    def show(self, seen: Seen) -> None:
        if not isinstance(seen, Waiting):  # whatever else is seen comes after a description
            self._tell()
        if isinstance(seen, LogLine):
            if not self._quiet:
                _write("line", **_place(seen), rank=seen.rank, text=seen.text)
        elif isinstance(seen, JobEvent):
            _write("event", **_place(seen), name=seen.name, fields=dict(seen.fields))
        elif isinstance(seen, StatusChanged):
            told = {"status": seen.status, "message": seen.message}
            _write("status", time=_iso(seen.time_ms / 1000), **told, before=seen.before, lasted_seconds=seen.lasted)
        elif isinstance(seen, Waiting):
            since = _iso(seen.since)
            _write("waiting", what=seen.what, reason=seen.reason, since=since, again_in_seconds=seen.again_in)
        elif isinstance(seen, Reached):
            _write("reached", lasted_seconds=seen.lasted)
        elif isinstance(seen, CheckpointsStalled | CheckpointKept | CheckpointsUnseen):
            _write_news(seen)

    def end(
        self, outcome: Outcome, results: Mapping[str, Any], traceback: tuple[Worker, tuple[str, ...]] | None
    ) -> None:
        told = None
        if traceback is not None:
            (host, rank), lines = traceback
            told = {"host": host, "rank": rank, "lines": list(lines)}
        _write("ended", job=self._job, outcome=outcome_document(outcome), result=dict(results), traceback=told)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            show_job(self._job, self._where)


def show_job(job: str, where: str) -> None:
    """Which job the lines are about: it is there."""
    _write("job", job=job, where=where)


def show_resumption(prepared: Resumption) -> None:
    found = prepared.checkpoints
    checkpoints = {"location": found.where, "files": found.files, "newest": found.newest.isoformat()}
    _write("resumption", job=prepared.job, resumes=prepared.old.job, checkpoints=checkpoints)


def _write_news(seen: CheckpointNews) -> None:
    if isinstance(seen, CheckpointsUnseen):
        _write("checkpoints_unseen", location=seen.where, reason=seen.reason)
        return
    known = {"newest": seen.newest, "files": seen.files, "bytes": seen.size}
    lasted = {"location": seen.where, "lasted_seconds": seen.lasted}
    if isinstance(seen, CheckpointKept):
        _write("checkpoint_kept", time=_iso(seen.time_ms / 1000), **lasted, **known)
        return
    limits = {"limit_seconds": seen.limit, "longest_gap_seconds": seen.longest}
    steps = {"step_then": seen.step_then, "step_now": seen.step_now}
    _write("checkpoints_stalled", since=_iso(seen.time_ms / 1000), **lasted, **limits, **known, **steps)


def _place(seen: LogLine | JobEvent) -> dict[str, Any]:
    return {"time": _iso(seen.time_ms / 1000), "host": seen.host, "late": seen.late}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _write(seen: str, **members: Any) -> None:
    # In ASCII: some characters end a line for some readers.
    click.echo(json.dumps({"follow": _VERSION, "seen": seen, **members}, allow_nan=False))
