"""What a preflight found, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from smdp_launch.cli.render.next import command_for, say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobs.preflight.check import Result
from smdp_launch.jobs.preflight.run import Preflight
from smdp_launch.planning.plan import Plan
from smdp_launch.units import count

#: Version of ``preflight --json``; raised when a member changes its meaning or goes.
_VERSION = 1


def show_preflight(plan: Plan, done: Preflight) -> None:
    console = Console(highlight=False)
    told, style = "nothing stands in the way", "bold green"
    if done.problems:
        told, style = count(len(done.problems), "problem"), "bold red"
    console.print(Text(plan.spec.name, "bold"), Text(told, style), sep="  ")
    width = len(str(len(done.results)))
    print_rows(
        console,
        [(f"{number:>{width}} {one.code} {one.subject}", _said(one)) for number, one in enumerate(done.results, 1)],
    )
    if done.problems:
        say_next(f"mend that, then: {command_for('preflight', plan.job_file)}")
    else:
        say_next(command_for("launch", plan.job_file))


def _said(one: Result) -> str:
    note = "; ".join(each.message for each in one.problems) if one.problems else one.note
    state = _state(one)
    return f"{state}: {note}" if note and state != "ignored" else state


def show_document(done: Preflight | None, diagnostics: Sequence[Diagnostic]) -> None:
    document: dict[str, Any] = {
        "preflight": _VERSION,
        "passed": done is not None and not done.problems,
        "checks": [_check(number, one) for number, one in enumerate(done.results if done is not None else (), 1)],
        "diagnostics": [one.to_json() for one in diagnostics],
    }
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _check(number: int, one: Result) -> dict[str, Any]:
    return {"number": number, "code": one.code, "subject": one.subject, "state": _state(one), "note": one.note}


def _state(one: Result) -> str:
    if one.checked:
        return "problem" if one.problems else "ok"
    return "ignored" if one.note == "ignored" else "not checked"
