from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import click

from smdp_launch.cli.shared import options

_AGO = re.compile(r"(?P<amount>\d{1,6})(?P<unit>s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _since(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """``10m``, or a time as ISO 8601 has it, of this machine's zone if it names none."""
    if value is None:
        return None
    ago = _AGO.fullmatch(value)
    if ago is not None:
        return datetime.now(timezone.utc) - timedelta(seconds=int(ago["amount"]) * _SECONDS[ago["unit"]])
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{value!r} is neither a time such as 2026-11-21T14:30 nor one such as 10m") from None


def _pattern(_: click.Context, __: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no pattern: {error}") from None


@click.command("logs", short_help="Print the lines of a job's hosts.")
@options.job_name
@click.option("--since", metavar="TIME", callback=_since, help="Only lines since then: 10m, 2h, 2026-11-21T14:30.")
@click.option("--host", metavar="HOST", help="Only those of one host, such as algo-2.")
@click.option("--rank", type=click.IntRange(min=0), help="Only what this worker wrote.")
@click.option("--grep", metavar="PATTERN", callback=_pattern, help="Only lines that hold the pattern.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N of them.")
@click.option("--utc/--local", "utc", default=True, help="Times in UTC, as AWS shows them, or in this machine's zone.")
@options.region
@click.option("--json", "as_json", is_flag=True, help="The lines as one JSON document (docs/json.md).")
def command(
    name: str | None,
    since: datetime | None,
    host: str | None,
    rank: int | None,
    grep: re.Pattern[str] | None,
    tail: int | None,
    utc: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Print the lines that the hosts of job NAME (default: `latest`) have written so far.

    Each has its time, host and rank; the lines of all hosts come in the order of their times. `follow` shows what is
    still to come.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.logs import print_document, show_lines
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.jobs.logs.read import Wanted, read_lines
    from smdp_launch.jobs.status.description import describe

    job = attach(name, region=region)
    job.tell = show_waiting
    with job.reached() as clients:
        found = describe(clients, job.name)  # or it would be a job without a line that nobody knows
        lines = read_lines(clients, job.name, Wanted(since, host, rank, grep, tail))
        if as_json:
            print_document(job, lines)
        else:
            show_lines(job, found, lines, utc)
