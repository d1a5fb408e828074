"""The results of `doctor`, for a person, for a program and for a bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from smdp_launch import __version__
from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.plain_text import without_controls
from smdp_launch.units import count

if TYPE_CHECKING:
    from smdp_launch.doctor.examination import Examination
    from smdp_launch.doctor.results import CheckResult

#: Version of ``doctor --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


def print_examination(examination: Examination) -> None:
    console = Console(highlight=False)
    console.print(Text("this machine", "bold"), _summary(examination), sep="  ")
    rows = [row for one in examination.results for row in _rows(one)]
    print_rows(console, rows)
    print_next("fix the first error, then: smdp-launch doctor" if examination.errors else "smdp-launch launch --local")


def _summary(examination: Examination) -> Text:
    errors, warnings = len(examination.errors), len(examination.warnings)
    if not errors and not warnings:
        return Text("all checks passed", "bold green")
    found = [count(number, noun) for number, noun in ((errors, "error"), (warnings, "warning")) if number]
    return Text(", ".join(found), "bold red" if errors else "bold yellow")


def _rows(result: CheckResult) -> list[tuple[str, str]]:
    rows = [(result.name, f"{result.verdict}: {result.found}")]
    if result.fix is not None:
        rows.append(("", _fix(result)))
    return rows


def _fix(result: CheckResult) -> str:
    return f"fix: {result.fix}" + (f": {result.command}" if result.command is not None else "")


def print_report(examination: Examination) -> None:
    """Lines of plain text, in the order of the results."""
    click.echo(f"smdp-launch doctor --report ({__version__})")
    for one in examination.results:
        click.echo(without_controls(f"{one.name}: {one.verdict}: {one.found}"))


def print_json(examination: Examination) -> None:
    print_document(
        {
            "doctor": _VERSION,
            "version": __version__,
            "passed": not examination.errors,
            "results": [one.to_json() for one in examination.results],
        }
    )
