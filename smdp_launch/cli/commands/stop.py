from __future__ import annotations

import json

import click

from smdp_launch.cli.shared import options


@click.command("stop", short_help="Stop a job.")
@options.job_name
@options.region
@click.option("--json", "as_json", is_flag=True, help="Its status then as one JSON document (docs/json.md).")
def command(name: str | None, region: str | None, as_json: bool) -> None:
    """Ask the service to stop job NAME (default: `latest`).

    Its script gets SIGTERM and 120 s to save what it needs. A job that has ended is left as it is.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.status import show_stopped, stopped_document
    from smdp_launch.cli.render.terminal.waiting import show_waiting

    job = attach(name, region=region)
    job.tell = show_waiting
    status = job.stop()
    if as_json:
        click.echo(json.dumps(stopped_document(job, status), indent=2))
    else:
        show_stopped(job, status, job.describe())
