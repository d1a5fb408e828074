"""The command that comes next, on standard error: standard output holds what was asked for alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from smdp_launch.rules.account import Placeholder

DEFAULT_JOB_FILE = "job.yaml"


def say_next(text: str) -> None:
    click.echo(f"next: {text}", err=True)


def command_for(verb: str, job_file: str) -> str:
    """As a person would type it: the job file that is the default is left out."""
    return shlex.join(["smdp-launch", *verb.split(), *([] if job_file == DEFAULT_JOB_FILE else [job_file])])


def command_for_job(verb: str, job: str, region: str | None = None) -> str:
    """As a person would type it here: the job that was launched last needs no name, one of this folder no region."""
    from smdp_launch.jobs.history import find_launch

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
