"""Several jobs, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from smdp_launch.cli.render.next import command_for_job, say_next
from smdp_launch.cli.render.status import place, runtime
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.status.list_jobs import Listed

#: Version of ``list --json``; raised when a member changes its meaning or goes.
_VERSION = 1


def show_jobs(found: Sequence[Listed], region: str | None) -> None:
    if not found:
        where = f"in {region}" if region is not None else "from this folder"
        click.echo(f"no job was launched {where}")
        say_next("smdp-launch launch --local, then without --local on AWS")
        return
    print_rows(Console(highlight=False), [(one.job, _told(one)) for one in found])
    for problem in dict.fromkeys(one.problem for one in found if one.problem is not None):
        click.echo(f"unknown: {problem}", err=True)
    say_next(command_for_job("status", found[0].job, region))


def _told(one: Listed) -> str:
    parts = [f"{one.summary}, {place(one.where)}, {one.time:%Y-%m-%d %H:%M} UTC"]
    if one.billable_seconds is not None:
        billed = "" if one.where == LOCAL else " billed"
        parts.append(f"{runtime(one.where, one.billable_seconds, one.hosts)}{billed}")
    if one.usd is not None:
        parts.append(f"{one.usd:.2f} USD" + (f" of at most {one.most_usd:.2f}" if one.most_usd is not None else ""))
    elif one.most_usd is not None:
        parts.append(f"at most {one.most_usd:.2f} USD")
    return "; ".join(parts)


def as_document(found: Sequence[Listed]) -> dict[str, Any]:
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
            for one in found
        ],
    }
