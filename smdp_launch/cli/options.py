"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.completing import job_files, launched_jobs

#: Whether the file can be read is told as a diagnostic, like everything else about it.
job_file = click.argument(
    "job_file",
    metavar="[JOBFILE]",
    type=click.Path(path_type=Path),
    default=Path("job.yaml"),
    shell_complete=job_files,
)

settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Say otherwise than the job file, such as compute.max_run=3600; may be repeated.",
)

job_name = click.argument("name", metavar="[NAME]", required=False, shell_complete=launched_jobs)

region = click.option(
    "--region", metavar="REGION", help="Where to look for a job that was not launched from this folder."
)
