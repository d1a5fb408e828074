from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.planning.fix import FixResult


@click.command("validate")
@options.job_file
@options.settings
@click.option(
    "--fix", is_flag=True, help="Show the fixes that need no decision as a diff, and apply them after confirmation."
)
@click.option("--yes", is_flag=True, help="With --fix: apply the fixes without confirmation.")
@options.json_document
def command(job_file: Path, settings: tuple[str, ...], fix: bool, yes: bool, as_json: bool) -> None:
    """Check JOBFILE (default: job.yaml) and report every error at once. No network and no credentials are needed.

    The exit code is 0 if the file is valid, and 3 if it is not. With --fix, it is that of the fixed file.
    """
    if yes and not fix:
        raise click.UsageError("--yes requires --fix")
    if fix and as_json and not yes:
        raise click.UsageError("--json cannot ask for confirmation: add --yes to apply the fixes")

    if fix:
        _fix(job_file, settings, yes=yes, as_json=as_json)
        return
    checked = check(job_file, settings=settings)
    if as_json:
        print_document(checked.to_json())
    checked.require()
    if not as_json:
        _print_valid(job_file, checked)


def _print_valid(job_file: Path, checked: CheckedJob) -> None:
    from smdp_launch.cli.render.next_step import command_for, print_next
    from smdp_launch.rules.request.placeholders import to_fill_in

    if checked.diagnostics:
        from smdp_launch.cli.render.diagnostics import print_diagnostics

        print_diagnostics(checked.diagnostics)
    placeholders = f"; {to_fill_in(checked.placeholders)}" if checked.placeholders else ""
    click.echo(f"{job_file}: valid{placeholders}")
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
