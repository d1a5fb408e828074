"""The logs of a job, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone

import click
from rich.text import Text

from smdp_launch.cli.render.job.follow import JobLayout
from smdp_launch.cli.render.json_output import json_text
from smdp_launch.cli.render.next_step import command_for_job, next_for_job, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.status.description import Description

#: Version of ``logs --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


def print_lines(job: Job, description: Description, lines: Iterable[LogLine], utc: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    layout = JobLayout.of_description(description)
    is_plain = console.color_system is None
    for line in lines:
        time, name = f"{_time(line.time_ms, utc)} ", f"{layout.name(line.host, line.rank)} | "
        if is_plain:  # rich takes several times as long, and a log in a file may have millions of lines
            click.echo(f"{time}{name}{line.text}")
            continue
        text = Text(time, "dim")
        text.append(name, layout.style(line.host, line.rank))
        text.append_text(Text.from_ansi(line.coloured or line.text))
        console.print(text)
    next_step = next_for_job(job, description)
    these = command_for_job("logs", job.name, job.region)
    print_next(command_for_job("status", job.name, job.region) if next_step == these else next_step)


def print_lines_json(job: Job, lines: Iterable[LogLine]) -> None:
    """Print line by line: the logs may be larger than the memory."""
    head = {"logs": _VERSION, "job": job.name, "where": job.where}
    click.echo(json.dumps(head)[:-1] + ', "lines": [', nl=False)
    for index, line in enumerate(lines):
        entry = {"time": _iso(line.time_ms), "host": line.host, "rank": line.rank, "text": line.text}
        click.echo(("," if index else "") + "\n" + json_text(entry, indent=None), nl=False)
    click.echo("\n]}")


def _time(time_ms: int, utc: bool) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    moment = moment if utc else moment.astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}{'Z' if utc else f'{moment:%z}'}"


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
