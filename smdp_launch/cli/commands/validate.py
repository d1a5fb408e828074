from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.planning.fix import Fixed


@click.command("validate", short_help="Find every mistake in a job file; --fix corrects those with one right fix.")
@options.job_file
@options.settings
@click.option("--fix", is_flag=True, help="Show the fixes that need no decision as a diff, and apply them once agreed.")
@click.option("--yes", is_flag=True, help="With --fix: apply them without asking.")
@click.option("--json", "as_json", is_flag=True, help="The diagnostics as one JSON document (docs/json.md).")
def command(job_file: Path, settings: tuple[str, ...], fix: bool, yes: bool, as_json: bool) -> None:
    """Find every mistake in JOBFILE (default ./job.yaml) at once, without network or credentials.

    Exit code 0 if it is sound, 3 if it is not; with --fix, that of the file as it is afterwards.
    """
    if yes and not fix:
        raise click.UsageError("--yes applies the fixes of --fix: add --fix")
    if fix and as_json and not yes:
        raise click.UsageError("--json asks nothing: add --yes to apply the fixes")
    from smdp_launch.checking.job import check_job

    if fix:
        _fix(job_file, settings, yes=yes, as_json=as_json)
        return
    checked = check_job(job_file, settings=settings)
    if as_json:
        click.echo(json.dumps(checked.to_json(), indent=2, ensure_ascii=False))
    checked.require()
    if not as_json:
        _show_sound(job_file, checked)


def _show_sound(job_file: Path, checked: CheckedJob) -> None:
    from smdp_launch.cli.render.next import command_for, say_next
    from smdp_launch.rules.request.placeholders import to_fill_in

    if checked.diagnostics:
        from smdp_launch.cli.render.diagnostics import show_diagnostics

        show_diagnostics(checked.diagnostics)
    missing = f"; {to_fill_in(checked.placeholders)}" if checked.placeholders else ""
    click.echo(f"{job_file}: sound{missing}")
    say_next(command_for("plan", str(job_file)))


def _fix(job_file: Path, settings: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    from smdp_launch.planning.fix import fix_job, write

    fixed = fix_job(job_file, settings=settings)
    if not as_json:
        _show_difference(fixed)
    apply = bool(fixed.files) and (yes or _agreed(fixed))
    if apply:
        write(fixed)
    checked = fixed.after if apply else fixed.before
    if as_json:
        told = checked.to_json() | {"fixed": [one.to_json() for one in fixed.applied]}
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif apply:
        click.echo(f"{', '.join(one.name for one in fixed.files)}: {len(fixed.applied)} fixed")
    checked.require()
    if not as_json:
        _show_sound(job_file, checked)


def _show_difference(fixed: Fixed) -> None:
    from smdp_launch.cli.render.fix import show_diff

    for one in fixed.files:
        show_diff(one.diff)
    if not fixed.files and fixed.before.diagnostics:
        click.echo("Nothing can be fixed without a decision of yours: see the help of each.")


def _agreed(fixed: Fixed) -> bool:
    from smdp_launch.planning.fix import check_writable

    if sys.stdin is None or not sys.stdin.isatty():
        click.echo("Nothing was changed: there is no terminal to ask at. Add --yes to apply the fixes.", err=True)
        return False
    check_writable(fixed)
    return click.confirm("Apply the fixes?", default=False)
