from __future__ import annotations

import json
from pathlib import Path

import click

from smdp_launch.cli import options


@click.command("validate", short_help="Find every mistake in a job file.")
@options.job_file
@options.settings
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON document (docs/json.md).")
def command(job_file: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Find every mistake in JOBFILE (default ./job.yaml) at once, without network or credentials.

    Exit code 0 if it is sound, 3 if it is not.
    """
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.next import command_for, say_next
    from smdp_launch.planning.prepare import check_job
    from smdp_launch.rules.account import to_fill_in

    checked = check_job(job_file, settings=settings)
    if as_json:
        click.echo(json.dumps(checked.to_json(), indent=2, ensure_ascii=False))
    checked.require()
    if as_json:
        return
    show_diagnostics(checked.diagnostics)
    missing = f"; {to_fill_in(checked.placeholders)}" if checked.placeholders else ""
    click.echo(f"{job_file}: sound{missing}")
    say_next(command_for("plan", str(job_file)))
