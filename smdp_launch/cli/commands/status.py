from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import SmdpError
    from smdp_launch.jobs.checkpoints.listing import Checkpoints
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.status.description import Description


@click.command("status", short_help="Tell how far a job is.")
@options.job_name
@options.region
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document (docs/json.md).")
def command(name: str | None, region: str | None, as_json: bool) -> None:
    """Tell what job NAME (default: `latest`) does, how long each step took, how it ended.

    The exit code is 0 however it ended: `follow` has the codes of the endings.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.status import as_document, show_status
    from smdp_launch.cli.render.terminal.waiting import show_waiting

    job = attach(name, region=region)
    job.tell = show_waiting
    with job.reached():  # once for both: a local cloud is not started again
        found = job.describe()
        kept = _kept(job, found)
    if as_json:
        click.echo(json.dumps(as_document(job, found, kept), indent=2, ensure_ascii=False))
    else:
        show_status(job, found, kept)


def _kept(job: Job, found: Description) -> Checkpoints | SmdpError | None:
    """Or why nobody knows: the status is told all the same."""
    from smdp_launch.errors import SmdpError

    try:
        return job.checkpoints(found)
    except SmdpError as error:
        return error
