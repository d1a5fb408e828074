from __future__ import annotations

import re
from datetime import datetime

import click

from smdp_launch.cli.shared import options


def _pattern(_: click.Context, __: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None


@click.command("logs")
@options.job_name
@options.since("Print only log lines since then: 10m, 2h, 2026-11-21T14:30.")
@click.option("--host", metavar="HOST", help="Print only the logs of this host, such as algo-2.")
@click.option("--rank", metavar="N", type=click.IntRange(min=0), help="Print only the logs of this rank.")
@click.option(
    "--grep", metavar="PATTERN", callback=_pattern, help="Print only lines that match this regular expression."
)
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Print only the last N lines.")
@click.option(
    "--utc/--local-time", "utc", default=True, help="Print times in UTC (default), or in the local time zone."
)
@click.option("--local", "old_local", is_flag=True, hidden=True)  # the former name of --local-time
@options.region
@options.json_document
def command(
    name: str | None,
    since: datetime | None,
    host: str | None,
    rank: int | None,
    grep: re.Pattern[str] | None,
    tail: int | None,
    utc: bool,
    old_local: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Print the logs that the hosts of job NAME (default: the latest) have written so far.

    Each line has its time, host and rank. The logs of all hosts are merged by time. Use `follow` for new lines of a
    running job.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.job.logs import print_lines, print_lines_json
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.logs.read import LogFilter, read_lines
    from smdp_launch.jobs.status.description import describe

    job = attach(name, region=region)
    job.on_waiting = print_retry
    with job.connected() as clients:
        description = describe(clients, job.name)  # fails for an unknown job, whose logs would be empty
        lines = read_lines(clients, job.name, LogFilter(since, host, rank, grep, tail))
        if as_json:
            print_lines_json(job, lines)
        else:
            print_lines(job, description, lines, utc and not old_local)
