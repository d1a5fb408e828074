from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.jobs.logs.messages import LogLine
    from smdp_launch.jobs.status.description import Description


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
@click.option("--no-events", is_flag=True, help="Omit event lines, which are JSON (docs/reference/events.md).")
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
    no_events: bool,
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
        _require_host(host, description)
        lines = read_lines(clients, job.name, LogFilter(since, host, rank, grep, tail, not no_events))
        if rank is not None and tail != 0:
            is_filtered = (since, host, grep) != (None, None, None)
            lines = _with_note(lines, _no_line(rank, description, is_filtered=is_filtered))
        if as_json:
            print_lines_json(job, lines)
        else:
            print_lines(job, description, lines, utc and not old_local)


def _require_host(host: str | None, description: Description) -> None:
    """Raises:
    click.UsageError: the job has no such host.
    """
    names = [f"algo-{number}" for number in range(1, description.hosts + 1)]
    if host is None or not names or host in names:
        return
    known = f"its host is {names[0]}" if len(names) == 1 else f"its hosts are {names[0]} to {names[-1]}"
    raise click.UsageError(f"{description.job} has no host {host}: {known}")


def _no_line(rank: int, description: Description, *, is_filtered: bool) -> str:
    """Why there is no line of the rank. The ranks of a job on AWS are unknown: its request does not have their number.

    Args:
        is_filtered: whether other options than ``--rank`` select lines.
    """
    workers = description.workers_per_host
    last = description.hosts * workers - 1 if workers is not None else None
    if last is not None and rank > last:
        known = "the only rank is 0" if last == 0 else f"the job has the ranks 0 to {last}"
        return f"no line of rank {rank} was found; {known}"
    return f"no line of rank {rank} matches the other options" if is_filtered else f"no line of rank {rank} was found"


def _with_note(lines: Iterable[LogLine], note: str) -> Iterator[LogLine]:
    """The same lines. If there are none, print the note."""
    from smdp_launch.cli.render.next_step import print_note

    line = None
    for line in lines:
        yield line
    if line is None:
        print_note(note)
