from __future__ import annotations

from datetime import datetime

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")
_MOST = 1000


def _tag(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    key, equals, wanted = value.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{value!r} is no tag with a value: write one such as team=vision")
    return key.strip(), wanted.strip()


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
    "--team",
    metavar="TAG=VALUE",
    callback=_tag,
    help="List the training jobs of your AWS account with this tag, launched from any machine.",
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, _MOST), default=20, show_default=True, help="Show at most N jobs."
)
@options.json_document
def command(
    status: str | None,
    is_local: bool | None,
    since: datetime | None,
    region: str | None,
    team: tuple[str, str] | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the jobs that were launched from this folder, newest first: status, location (local or AWS region), time,
    hosts and cost.

    With --region, list all training jobs of your AWS account in that region. With --team, list only the training jobs
    with a tag, in that region or in the region of your AWS configuration.
    """
    from smdp_launch.cli.render.job.listing import list_json, print_jobs
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.records.current_folder import require_current_folder
    from smdp_launch.jobs.status.list_jobs import JobFilter, jobs_of_folder, jobs_of_region
    from smdp_launch.jobs.team_jobs import jobs_of_team

    if (region is not None or team is not None) and is_local:
        raise click.UsageError(f"{'--region' if region is not None else '--team'} lists jobs on AWS: remove --local")
    wanted, most = JobFilter(status, is_local, since), limit + 1
    if team is not None:
        jobs = jobs_of_team(*team, region, most, wanted, print_retry)
        region = region or next((one.where for one in jobs), "your region")
    elif region is not None:
        jobs = jobs_of_region(region, most, wanted, print_retry)
    else:
        require_current_folder()
        jobs = jobs_of_folder(most, wanted, print_retry)
    if as_json:
        print_document(list_json(jobs[:limit]))
    else:
        filtered = team is not None or wanted != JobFilter()
        print_jobs(jobs[:limit], region, filtered=filtered, more=len(jobs) > limit)
