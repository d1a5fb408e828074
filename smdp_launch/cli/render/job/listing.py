"""A list of jobs, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from smdp_launch.cli.render.next_step import command_for_job, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.status.list_jobs import ListedJob
from smdp_launch.systems import linux_refusal
from smdp_launch.units import duration

#: Version of ``list --json``; raised when a field changes its meaning or is removed.
_VERSION = 1
_STYLES = {"Completed": "green", "Failed": "red", "Stopped": "yellow"}


def print_jobs(jobs: Sequence[ListedJob], region: str | None, *, filtered: bool = False, more: bool = False) -> None:
    """Args:
    region: of ``list --region``.
    filtered: whether an option excludes jobs.
    more: whether there are more jobs than these.
    """
    if not jobs:
        where = f"in {region}" if region is not None else "from this folder"
        click.echo(f"no job {where} matches the filters" if filtered else f"no job was launched {where}")
        if not filtered:
            can_run = linux_refusal("a local run") is None
            print_next("smdp-launch launch --local, then without --local on AWS" if can_run else "smdp-launch launch")
        return
    print_table(Console(highlight=False), _columns(jobs))
    for problem in dict.fromkeys(one.problem for one in jobs if one.problem is not None):
        click.echo(f"unknown: {problem}", err=True)
    if more:
        click.echo(f"only the newest {len(jobs)} jobs are shown: raise --limit to show more", err=True)
    print_next(command_for_job("status", jobs[0].job, region))


def _columns(jobs: Sequence[ListedJob]) -> list[Column]:
    statuses = [one.status or "Unknown" for one in jobs]
    details = ["" if one.summary.lower() == (one.status or "unknown").lower() else one.summary for one in jobs]
    columns = [
        Column("NAME", [one.job for one in jobs]),
        Column("STATUS", statuses, [_STYLES.get(one, "") for one in statuses]),
        Column("WHERE", [one.where for one in jobs]),
        Column("CREATED (UTC)", [f"{one.time:%Y-%m-%d %H:%M}" for one in jobs], drop=4),
        Column("RUNTIME", [_runtime(one) for one in jobs], drop=2),
        Column("HOSTS", [_text(one.hosts) for one in jobs], drop=1),
        Column("COST (USD)", [_cost(one) for one in jobs], drop=3),
        Column("DETAILS", details, drop=5),
    ]
    return [one for one in columns if one.title != "DETAILS" or any(details)]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _runtime(job: ListedJob) -> str:
    return "-" if job.billable_seconds is None else duration(job.billable_seconds)


def _cost(job: ListedJob) -> str:
    if job.where == LOCAL:
        return "not billed"
    if job.usd is not None:
        return f"{job.usd:.2f}"
    return f"at most {job.most_usd:.2f}" if job.most_usd is not None else "-"


def list_json(jobs: Sequence[ListedJob]) -> dict[str, Any]:
    return {
        "list": _VERSION,
        "jobs": [
            {
                "job": one.job,
                "where": one.where,
                "time": one.time.isoformat(timespec="seconds"),
                "training_job_status": one.status,
                "summary": one.summary,
                "hosts": one.hosts,
                "billable_seconds": one.billable_seconds,
                "usd": one.usd,
                "most_usd": one.most_usd,
            }
            for one in jobs
        ],
    }
