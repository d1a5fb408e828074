from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check
from smdp_launch.diagnostics import has_errors
from smdp_launch.errors import JobFileRefused

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.planning.fix import FixResult


#: The formats of code review, by the name of the module and function in cli/render/review.
_FORMATS = {"sarif": "sarif", "junit": "junit", "github": "annotations", "gitlab": "annotations"}


@click.command("validate")
@options.several_job_files
@options.settings
@click.option(
    "--fix", is_flag=True, help="Show a diff with the fixes that need no decision, and apply them after confirmation."
)
@click.option("--yes", is_flag=True, help="With --fix: apply the fixes without confirmation.")
@click.option(
    "--format",
    "review",
    type=click.Choice(list(_FORMATS)),
    help="Print a report for code review: SARIF, JUnit XML, or annotations for GitHub or GitLab.",
)
@options.json_document
def command(
    job_files: tuple[Path, ...], settings: tuple[str, ...], fix: bool, yes: bool, review: str | None, as_json: bool
) -> None:
    """Check each JOBFILE (default: job.yaml) and report every error at once. The command needs no network and no
    credentials.

    The exit code is 0 if all files are valid, and 3 if a file is not valid. With --fix, the exit code is for the fixed
    files.
    """
    if yes and not fix:
        raise click.UsageError("--yes requires --fix")
    if fix and as_json and not yes:
        raise click.UsageError("--json cannot ask for confirmation: add --yes to apply the fixes")
    if review and (fix or as_json):
        raise click.UsageError("--format excludes --fix and --json")
    if len(job_files) > 1 and (fix or as_json):
        raise click.UsageError("--fix and --json take one JOBFILE: --format sarif reports several")

    job_files = job_files or (Path("job.yaml"),)
    if fix:
        _fix(job_files[0], settings, yes=yes, as_json=as_json)
        return
    checked = [check(one, settings=settings) for one in dict.fromkeys(job_files)]
    if as_json:
        print_document(checked[0].to_json())
    elif review:
        _print_review(review, checked)
    else:
        _print_verdicts(checked)
    refused = [one for one in checked if has_errors(one.diagnostics)]
    if refused:
        raise JobFileRefused(list(dict.fromkeys(each for one in refused for each in one.diagnostics)))


def _print_review(name: str, checked: Sequence[CheckedJob]) -> None:
    module = importlib.import_module(f"smdp_launch.cli.render.review.{_FORMATS[name]}")
    text: str = getattr(module, name)(checked)
    if text:
        click.echo(text)


def _print_verdicts(checked: Sequence[CheckedJob]) -> None:
    for one in checked:
        if not has_errors(one.diagnostics):
            _print_valid(one.path, one, advise=len(checked) == 1)
        elif len(checked) > 1:
            click.echo(f"{one.path}: not valid")


def _print_valid(job_file: Path, checked: CheckedJob, *, advise: bool = True) -> None:
    from smdp_launch.cli.render.next_step import command_for, print_next
    from smdp_launch.rules.request.placeholders import to_fill_in

    if checked.diagnostics:
        from smdp_launch.cli.render.diagnostics import print_diagnostics

        print_diagnostics(checked.diagnostics)
    placeholders = f"; {to_fill_in(checked.placeholders)}" if checked.placeholders else ""
    click.echo(f"{job_file}: valid{placeholders}")
    if advise:
        print_next(command_for("plan", str(job_file)))


def _fix(job_file: Path, settings: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    from smdp_launch.jobs.measured_input import measured_input
    from smdp_launch.planning.fix import fix_job, write

    fixed = fix_job(job_file, settings=settings, measured=measured_input(job_file))
    if not as_json:
        _print_diffs(fixed)
    apply = bool(fixed.files) and (yes or _confirmed(fixed))
    if apply:
        write(fixed)
    checked = fixed.after if apply else fixed.before
    if as_json:
        document = checked.to_json() | {"fixed": [one.to_json() for one in fixed.applied]}
        print_document(document)
    elif apply:
        click.echo(f"{', '.join(one.name for one in fixed.files)}: {len(fixed.applied)} fixed")
    checked.require()
    if not as_json:
        _print_valid(job_file, checked)


def _print_diffs(fixed: FixResult) -> None:
    from smdp_launch.cli.render.fix import print_diff

    for one in fixed.files:
        print_diff(one.diff)
    if not fixed.files and fixed.before.diagnostics:
        click.echo("No fix can be applied without your decision: see the help of each diagnostic.")


def _confirmed(fixed: FixResult) -> bool:
    from smdp_launch.planning.fix import check_writable

    if sys.stdin is None or not sys.stdin.isatty():
        click.echo("No file was changed: there is no terminal to ask at. Add --yes to apply the fixes.", err=True)
        return False
    check_writable(fixed)
    return click.confirm("Apply the fixes?", default=False)
