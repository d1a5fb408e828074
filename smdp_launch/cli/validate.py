from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli import options


@click.command("validate", short_help="Find every mistake in a job file.")
@options.job_file
@options.settings
def command(job_file: Path, settings: tuple[str, ...]) -> None:
    """Find every mistake in JOBFILE (default ./job.yaml) at once, without network or credentials.

    Exit code 0 if it is sound, 3 if it is not.
    """
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.plan.prepare import check_job

    checked = check_job(job_file, settings=settings)
    checked.require()
    show_diagnostics(checked.diagnostics)
    click.echo(f"{job_file}: no mistakes found")
