from __future__ import annotations

from datetime import datetime

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")
_MOST = 1000


@click.command("list")
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice(_STATUSES, case_sensitive=False),
    help=f"Show only jobs with this status: {', '.join(_STATUSES)}.",
)
@click.option("--local/--aws", "is_local", default=None, help="Show only local jobs, or only jobs on AWS.")
@options.since("Show only jobs created since then: 10m, 2h, 3d, 2026-11-21, 2026-11-21T14:30.")
@click.option("--region", metavar="REGION", help="List all training jobs of your AWS account in this region.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, _MOST), default=20, show_default=True, help="Show at most N jobs."
)
@options.json_document
def command(
    status: str | None,
    is_local: bool | None,
    since: datetime | None,
    region: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the jobs that were launched from this folder, newest first: status, place, time, hosts and cost.

    With --region, list all training jobs of your AWS account in that region.
    """
    from smdp_launch.cli.render.job.listing import list_json, print_jobs
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.status.list_jobs import JobFilter, jobs_of_folder, jobs_of_region

    if region is not None and is_local:
        raise click.UsageError("--region lists jobs on AWS: remove --local")
    wanted, most = JobFilter(status, is_local, since), limit + 1
    jobs = (
        jobs_of_region(region, most, wanted, print_retry)
        if region is not None
        else jobs_of_folder(most, wanted, print_retry)
    )
    if as_json:
        print_document(list_json(jobs[:limit]))
    else:
        print_jobs(jobs[:limit], region, filtered=wanted != JobFilter(), more=len(jobs) > limit)
