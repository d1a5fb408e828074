"""The command that comes next, on standard error: standard output holds what was asked for alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # a validation, which is over soon, names its next command, too
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.records.outcome import Outcome
    from smdp_launch.jobs.status.description import Description
    from smdp_launch.rules.request.placeholders import Placeholder

DEFAULT_JOB_FILE = "job.yaml"


def say_next(text: str) -> None:
    click.echo(f"next: {text}", err=True)


def command_for(verb: str, job_file: str) -> str:
    """As a person would type it: the job file that is the default is left out."""
    named = f"./{job_file}" if job_file.startswith("-") else job_file
    return shlex.join(["smdp-launch", *verb.split(), *([] if job_file == DEFAULT_JOB_FILE else [named])])


def command_for_job(verb: str, job: str, region: str | None = None) -> str:
    """As a person would type it here: the job that was launched last needs no name, one of this folder no region."""
    from smdp_launch.jobs.records.history import find_launch

    last = find_launch()
    if last is not None and last.job == job:
        return f"smdp-launch {verb}"
    elsewhere = ["--region", region] if region is not None and find_launch(job) is None else []
    return shlex.join(["smdp-launch", verb, job, *elsewhere])


def after_local_run(job_file: str, placeholders: Sequence[Placeholder]) -> str:
    """What comes after a local run of a job."""
    fields = ", ".join(one.field for one in placeholders)
    fill_in = f"fill in {fields} in {job_file}, then: " if fields else ""
    return f"{fill_in}{command_for('launch', job_file)}"


def after_end(job: str, region: str | None, ended: Outcome) -> str:
    """What comes after the end of a job, the same whichever command shows that end.

    A job that was stopped resumes where it keeps checkpoints; one that left nothing is launched again, if that is
    known to be possible from the current folder.
    """
    from smdp_launch.jobs.records.history import LOCAL, find_launch

    if ended.model is not None:
        return command_for_job("download", job, region)
    if ended.status == "Stopped" and ended.checkpoints is not None:
        return command_for_job("resume", job, region)
    launched = find_launch(job)
    if launched is None or ended.status == "Completed":
        return command_for_job("logs", job, region)
    again = command_for("launch", launched.job_file) + (" --local" if launched.where == LOCAL else "")
    return f"mend it, then: {again}" if ended.status == "Failed" else again


def next_for(job: Job, found: Description) -> str:
    """What comes after a look at a job that may still run."""
    if found.outcome is None:
        return command_for_job("follow", job.name, job.region)
    return after_end(job.name, job.region, found.outcome)
