"""Follows a job to its end, and resumes it as the policy of its job file says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from smdp_launch.cli.render.job.events import EventView, print_resumption
from smdp_launch.cli.render.job.follow import JobLayout
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.render.next_step import command_for_job, print_next, print_note
from smdp_launch.cli.shared.follow_session import (
    Answer,
    FollowSession,
    RunOptions,
    follow_local,
    interrupts_deferred,
)
from smdp_launch.errors import Refused, WaitTimedOut
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.resume import Resumption, prepare, resume
from smdp_launch.jobs.retries import due_retry
from smdp_launch.jobs.service.clients import Clients


@dataclass(frozen=True)
class TimeLimit:
    """The time that a command follows a job and its retries.

    Args:
        total: seconds from now; None for no limit.
    """

    total: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def rest(self) -> float | None:
        return None if self.total is None else max(0.0, self.began + self.total - time.monotonic())


def follow_retries(
    clients: Clients,
    job: str,
    result: FollowResult | None,
    options: RunOptions,
    *,
    as_json: bool,
    answer: Answer = Answer.STOP,
    quiet: bool = False,
    limit: TimeLimit | None = None,
) -> tuple[str, FollowResult | None]:
    """Resume the job while its policy says so, and follow each new job. Return the last one and how it ended, None if
    the user detached from it.

    Args:
        result: how ``job`` ended.
        options: those with which ``job`` was followed.
        answer: what an interrupt does if the user cannot be asked.
        limit: after this time, no job is resumed.

    Raises:
        WaitTimedOut: the last job did not end in time. The next command is printed.
    """
    limit, where = limit or TimeLimit(), options.where
    while result is not None:
        prepared = _next(clients, job, result, limit, options.region)
        if prepared is None:
            break
        if as_json:
            print_resumption(prepared)
        else:
            from smdp_launch.cli.render.job import resume as render

            render.print_resumption(prepared, where)
        with interrupts_deferred(clients):
            resume(clients, prepared, where)
            job = prepared.job
            events = EventView(job, where, quiet=quiet, created=True) if as_json else None
            layout = JobLayout.of_description(prepared.old)
            session = FollowSession(clients, job, layout, answer, limit.rest, quiet, events, options=options)
            try:
                result = follow_local(session) if where == LOCAL and answer is Answer.STOP else session.run()
            except WaitTimedOut:  # it names the rest of the time
                if not as_json:
                    print_next(command_for_job("follow", job, options.region))
                raise WaitTimedOut(f"{job} has not ended within {limit.total:g} s; it continues") from None
    return job, result


def _next(clients: Clients, job: str, result: FollowResult, limit: TimeLimit, region: str | None) -> Resumption | None:
    """The next try; None if the job has succeeded, has had its retries, or cannot be resumed, or the time is over."""
    ended = result.outcome
    retry = due_retry(clients, job, ended)
    if retry is None:
        return None
    first = f": {ended.reason.splitlines()[0]}" if ended.reason else ""
    print_note(f"{job} {ended.summary}{first}")
    if limit.rest == 0:
        command = command_for_job("resume", job, region)
        print_note(f"the timeout of {limit.total:g} s is over, so no retry follows: `{command}` resumes the job")
        return None
    print_note(f"retry {retry.number} of {retry.at_most} after a failure of the kind {retry.after}")
    try:
        return prepare(clients, job, retry.number)
    except Refused as error:
        print_note(": ".join([str(error), *(one.message for one in error.diagnostics)]))
        return None
