from __future__ import annotations

import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.plan import Plan


@click.command("preflight", short_help="Ask AWS what would stand in a launch's way.")
@options.job_file
@options.settings
@options.ignore
@click.option("--json", "as_json", is_flag=True, help="The checks as one JSON document (docs/json.md).")
def command(job_file: Path, settings: tuple[str, ...], ignore: tuple[str, ...], as_json: bool) -> ExitCode:
    """Check the AWS account for JOBFILE (default ./job.yaml): identity, role, buckets, image, data, quota, network,
    and what the role may do.

    Nothing is made or changed. `launch` itself asks the first four before it uploads anything. Exit code 0 if nothing
    stands in the way, 6 if something does.
    """
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.preflight import show_document, show_preflight
    from smdp_launch.errors import ExitCode, JobFileRefused
    from smdp_launch.jobs.preflight.run import preflight
    from smdp_launch.jobs.service.clients import connect_aws

    try:
        plan = _plan(job_file, settings)
    except JobFileRefused as refused:
        if as_json:
            show_document(None, refused.diagnostics)
        raise
    done = preflight(connect_aws(plan.spec.region), plan, ignore)
    show_diagnostics(done.problems)
    if as_json:
        show_document(done, done.problems)
    else:
        show_preflight(plan, done)
    return ExitCode.REFUSED if done.problems else ExitCode.OK


def _plan(job_file: Path, settings: tuple[str, ...]) -> Plan:
    from smdp_launch.checking.job import check_job, require_launchable
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.planning.saved import is_saved_plan, load

    if is_saved_plan(job_file):
        if settings:
            raise click.UsageError("a saved plan is checked as it is: give the job file with --set")
        return load(job_file)
    checked = check_job(job_file, settings=settings)
    plan = make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16))
    require_launchable(checked)
    return plan
