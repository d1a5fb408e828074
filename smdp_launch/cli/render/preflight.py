"""The result of a preflight, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import command_for, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobs.preflight.check import Result
from smdp_launch.jobs.preflight.run import Preflight
from smdp_launch.planning.plan import Plan
from smdp_launch.units import count

#: Version of ``preflight --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


def print_preflight(plan: Plan, result: Preflight) -> None:
    console = Console(highlight=False)
    summary, style = "all checks passed", "bold green"
    if result.problems:
        summary, style = count(len(result.problems), "problem"), "bold red"
    console.print(Text(plan.spec.name, "bold"), Text(summary, style), sep="  ")
    width = len(str(len(result.results)))
    print_rows(
        console,
        [
            (f"{number:>{width}} {one.code} {one.subject}", _check_text(one))
            for number, one in enumerate(result.results, 1)
        ],
    )
    if result.problems:
        print_next(f"fix the problems, then: {command_for('preflight', plan.job_file)}")
    else:
        print_next(command_for("launch", plan.job_file))


def _check_text(one: Result) -> str:
    notes = [each.message for each in one.problems]
    if one.is_partial or not one.problems:
        notes.append(one.note)
    note = "; ".join(notes)
    state = _state(one)
    return f"{state}: {note}" if note and state != "ignored" else state


def print_json(result: Preflight | None, diagnostics: Sequence[Diagnostic]) -> None:
    document: dict[str, Any] = {
        "preflight": _VERSION,
        "passed": result is not None and not result.problems,
        "checks": [
            _check_json(number, one) for number, one in enumerate(result.results if result is not None else (), 1)
        ],
        "diagnostics": [one.to_json() for one in diagnostics],
    }
    print_document(document)


def _check_json(number: int, one: Result) -> dict[str, Any]:
    return {"number": number, "code": one.code, "subject": one.subject, "state": _state(one), "note": one.note}


def _state(one: Result) -> str:
    if one.checked:
        return "problem" if one.problems else "ok"
    return "ignored" if one.note == "ignored" else "not checked"
