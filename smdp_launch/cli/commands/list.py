from __future__ import annotations

import json

import click

from smdp_launch.cli.shared import options


@click.command("list", short_help="List the jobs that were launched from this folder.")
@options.region
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document (docs/json.md).")
def command(region: str | None, limit: int, as_json: bool) -> None:
    """List the jobs that were launched from this folder, the last first: how they ended, what was billed and paid.

    With --region all training jobs that the account has there, whoever launched them.
    """
    from smdp_launch.cli.render.jobs import as_document, show_jobs
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.jobs.status.list_jobs import jobs_here, jobs_of_region

    if region is not None:
        found = jobs_of_region(region, limit, tell=show_waiting)
    else:
        found = jobs_here(limit, tell=show_waiting)
    if as_json:
        click.echo(json.dumps(as_document(found), indent=2, ensure_ascii=False))
    else:
        show_jobs(found, region)
