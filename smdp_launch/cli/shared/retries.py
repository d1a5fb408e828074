"""Follows a job to its end, and resumes it as the policy of its job file says."""

from __future__ import annotations

from pathlib import Path

from smdp_launch.cli.render.job.events import EventView, print_resumption
from smdp_launch.cli.render.job.follow import JobLayout
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.render.next_step import print_note
from smdp_launch.cli.shared.follow_session import (
    Answer,
    FollowSession,
    RunOptions,
    follow_local,
    interrupts_deferred,
)
from smdp_launch.errors import Refused
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.resume import Resumption, prepare, resume
from smdp_launch.jobs.retries import due_retry
from smdp_launch.jobs.service.clients import Clients


def follow_retries(
    clients: Clients,
    job: str,
    where: str,
    result: FollowResult | None,
    *,
    as_json: bool,
    report: Path | None = None,
    answer: Answer = Answer.STOP,
) -> tuple[str, FollowResult | None]:
    """Resume the job while its policy says so, and follow each new job. Return the last one and how it ended, None if
    the user detached from it.

    Args:
        result: how ``job`` ended.
        answer: what an interrupt does if the user cannot be asked.
    """
    while result is not None:
        prepared = _next(clients, job, result)
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
            events = EventView(job, where, created=True) if as_json else None
            layout = JobLayout.of_description(prepared.old)
            options = RunOptions(where, report)
            session = FollowSession(clients, job, layout, answer, events=events, options=options)
            result = follow_local(session) if where == LOCAL and answer is Answer.STOP else session.run()
    return job, result


def _next(clients: Clients, job: str, result: FollowResult) -> Resumption | None:
    """The next try; None if the job has succeeded, has had its retries, or cannot be resumed."""
    ended = result.outcome
    retry = due_retry(clients, job, ended)
    if retry is None:
        return None
    first = f": {ended.reason.splitlines()[0]}" if ended.reason else ""
    print_note(f"{job} {ended.summary}{first}")
    print_note(f"retry {retry.number} of {retry.at_most} after a failure of the kind {retry.after}")
    try:
        return prepare(clients, job, retry.number)
    except Refused as error:
        print_note(str(error))
        return None
