"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from smdp_launch.cli.shared.completing import account_codes, job_files, launched_jobs


def _checks(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        return ()
    from smdp_launch.jobs.preflight.run import CHECKS

    known = [one.code for one in CHECKS]
    for value in values:
        if value.upper() not in known:
            raise click.BadParameter(f"{value!r} is no check of the account: one of {', '.join(known)}")
    return tuple(value.upper() for value in values)


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

ignore = click.option(
    "--ignore",
    metavar="CODE",
    multiple=True,
    callback=_checks,
    shell_complete=account_codes,
    help="Leave out the check of the account with this code, such as SMDP814; may be repeated.",
)

events = click.option(
    "--json", "as_json", is_flag=True, help="What happens as JSON documents, one a line (docs/json.md); asks nothing."
)

job_name = click.argument("name", metavar="[NAME]", required=False, shell_complete=launched_jobs)

region = click.option("--region", metavar="REGION", help="The region of a job that was not launched from this folder.")
