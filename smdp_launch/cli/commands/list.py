from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.jobs.status.list_jobs import ListedJob

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
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.status.list_jobs import jobs_of_folder, jobs_of_region

    def is_shown(job: ListedJob) -> bool:
        return (
            (status is None or job.status == status)
            and (is_local is None or (job.where == LOCAL) is is_local)
            and (since is None or job.time >= since)
        )

    if region is not None and is_local:
        raise click.UsageError("--region lists jobs on AWS: remove --local")
    is_filtered = any(one is not None for one in (status, is_local, since))
    most = _MOST if is_filtered else limit + 1
    jobs = (
        jobs_of_region(region, most, on_waiting=print_retry)
        if region is not None
        else jobs_of_folder(most, on_waiting=print_retry)
    )
    jobs = [one for one in jobs if is_shown(one)]
    if as_json:
        print_document(list_json(jobs[:limit]))
    else:
        print_jobs(jobs[:limit], region, filtered=is_filtered, more=len(jobs) > limit)
