"""Suggests the next command, on standard error: standard output holds only the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from smdp_launch.systems import command_line

if TYPE_CHECKING:  # `validate` must be fast, and prints a next command too
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.records.outcome import Outcome
    from smdp_launch.jobs.status.description import Description
    from smdp_launch.rules.request.placeholders import Placeholder

DEFAULT_JOB_FILE = "job.yaml"


def print_next(text: str) -> None:
    click.echo(f"next: {text}", err=True)


def print_note(text: str) -> None:
    click.echo(f"note: {text}", err=True)


def command_for(verb: str, job_file: str) -> str:
    """The command as a user types it: without the default job file."""
    named = f"./{job_file}" if job_file.startswith("-") else job_file
    return command_line(["smdp-launch", *verb.split(), *([] if job_file == DEFAULT_JOB_FILE else [named])])


def command_for_job(verb: str, job: str, region: str | None = None) -> str:
    """The command as a user types it in this folder: without the name of the latest job, and without a known region."""
    from smdp_launch.jobs.records.history import find_launch

    latest = find_launch()
    if latest is not None and latest.job == job:
        return f"smdp-launch {verb}"
    region_option = ["--region", region] if region is not None and find_launch(job) is None else []
    return command_line(["smdp-launch", verb, job, *region_option])


def next_after_local_run(job_file: str, placeholders: Sequence[Placeholder]) -> str:
    """The step after a local run of a job."""
    fields = ", ".join(one.field for one in placeholders)
    fill_in = f"fill in {fields} in {job_file}, then: " if fields else ""
    return f"{fill_in}{command_for('launch', job_file)}"


def next_after_end(job: str, region: str | None, ended: Outcome) -> str:
    """The step after the end of a job.

    Suggest `resume` for a job with checkpoints that was stopped or failed from outside. Suggest another launch for a
    job without results or checkpoints, if it was launched from the current folder.
    """
    from smdp_launch.jobs.records.history import LOCAL, find_launch
    from smdp_launch.jobs.retries import is_from_outside

    if ended.model is not None:
        launched = find_launch(job)
        download = command_for_job("download", job, region)
        if launched is None or not launched.serves:
            return download
        local = " --local" if launched.where == LOCAL else ""
        return f"{command_for_job('deploy', job, region)}{local}, or {download}"
    resume = command_for_job("resume", job, region)
    is_unplanned = ended.status == "Stopped" or is_from_outside(ended)
    if ended.can_resume and is_unplanned:
        return resume
    launch = find_launch(job)
    again = command_for("launch", launch.job_file) if launch is not None else ""
    again += " --local" if launch is not None and launch.where == LOCAL else ""
    if ended.wrote_nothing:
        save = "let the script save to SM_MODEL_DIR (docs/how-to/ddp.md, change 4)"
        return f"{save}, then: {again}" if again else save
    if launch is None or ended.status == "Completed":
        return command_for_job("logs", job, region)
    kept = f" (from the beginning), or {resume} (from the newest checkpoint, with the old source)"
    return again if is_unplanned else f"fix the cause, then: {again}{kept if ended.can_resume else ''}"


def next_for_job(job: Job, description: Description) -> str:
    """The step after a look at a job, which may still run."""
    if description.outcome is None:
        return command_for_job("follow", job.name, job.region)
    return next_after_end(job.name, job.region, description.outcome)
