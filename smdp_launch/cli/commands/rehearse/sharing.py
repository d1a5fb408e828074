"""What the rehearsals of jobs and of endpoints share: options, and the report at the end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.amounts import Seconds
from smdp_launch.cli.shared.local_runs import local_options

if TYPE_CHECKING:
    from smdp_launch.rehearsals.report import Report

_Command = TypeVar("_Command", bound=Callable[..., Any])

SECONDS = Seconds(min=0, max=86400)


def combined(*decorators: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        for one in reversed(decorators):
            command = one(command)
        return command

    return add


def duration(default: float, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--for", "seconds", metavar="SECONDS", type=SECONDS, default=default, show_default=True, help=text
    )


def within(text: str, default: float = 60) -> Callable[[_Command], _Command]:
    text = f"Seconds within which {text}."
    return click.option("--within", metavar="SECONDS", type=SECONDS, default=default, show_default=True, help=text)


job = combined(options.job_file, options.settings)
report_page = click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Also write the report to this file as an HTML page. Overwrites the file.",
)
run_options = combined(
    local_options,
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print events as JSON, one a line, and the report last (docs/reference/json.md).",
    ),
    report_page,
)


def writable_page(page: Path | None) -> Path | None:
    """The absolute path of the report, after a check before the job runs whether it can be written."""
    from smdp_launch.errors import EnvironmentProblem

    if page is None:
        return None
    page = page.resolve()
    if page.exists() and not page.is_file():
        raise EnvironmentProblem(f"{page} exists and is not a regular file: pass another --report")
    if not os.access(page.parent, os.W_OK | os.X_OK):
        raise EnvironmentProblem(f"{page} cannot be written: {page.parent} does not exist or is not writable")
    return page


def print_report(report: Report, as_json: bool, page: Path | None, request: Path | None = None) -> None:
    """Print the report, write its page, and save it for later plans of the same job.

    Args:
        request: that of an endpoint's rehearsal.
    """
    from smdp_launch.cli.render.next_step import command_for, print_next
    from smdp_launch.cli.render.plots.rehearsal_page import html_page
    from smdp_launch.cli.render.rehearse import print_verdict
    from smdp_launch.rehearsals.rehearsal import REPORT_STEPS
    from smdp_launch.rehearsals.saved import replace_file, save_report

    try:
        print_verdict(report, page, as_json=as_json)
    finally:  # even if the reader of the output has exited
        if report.verdict != "INCONCLUSIVE":
            save_report(report)
        if page is not None:
            replace_file(page, html_page(report))
    if not as_json:
        again = command_for(f"rehearse {report.kind}", report.run.job_file)
        if request is not None:
            again += f" --request {shlex.quote(str(request))}"
        if report.verdict == "INCONCLUSIVE" and request is not None:
            print_next(f"use a request that the model answers, or a shorter --after, then: {again}")
        elif report.verdict == "INCONCLUSIVE" and report.kind == "slow-input":
            print_next(f"use a script that reads its channels while it trains, then: {again}")
        elif report.verdict == "INCONCLUSIVE" and report.reason.endswith(REPORT_STEPS):
            print_next(f"{REPORT_STEPS}, then: {again}")
        elif report.verdict == "INCONCLUSIVE":
            print_next(f"inject the fault earlier, such as with: {again} --after 5")
        else:
            print_next(command_for("plan", report.run.job_file) if report.passed else f"fix the cause, then: {again}")
