from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.plan import Plan


@click.command("preflight")
@options.job_file
@options.settings
@options.ignore
@options.json_document
def command(job_file: Path, settings: tuple[str, ...], ignore: tuple[str, ...], as_json: bool) -> ExitCode:
    """Check your AWS account for a launch of JOBFILE (default: job.yaml): identity, role, buckets, image, data, quota,
    network and the role's permissions.

    The command creates and changes nothing. `launch` also runs the checks of identity, role, buckets, image and weekly
    budget before it uploads anything. The exit code is 0 if all checks pass, and 6 if a check fails.
    """
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.preflight import print_json, print_preflight
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.errors import ExitCode, JobFileRefused
    from smdp_launch.jobs.preflight.run import preflight
    from smdp_launch.jobs.service.clients import connect_aws

    try:
        plan = _plan(job_file, settings)
    except JobFileRefused as refused:
        if as_json:
            print_json(None, refused.diagnostics)
        raise
    with busy("checking the AWS account"):
        result = preflight(connect_aws(plan.spec.region), plan, ignore)
    print_diagnostics(result.problems)
    if as_json:
        print_json(result, result.problems)
    else:
        print_preflight(plan, result)
    return ExitCode.REFUSED if result.problems else ExitCode.OK


def _plan(job_file: Path, settings: tuple[str, ...]) -> Plan:
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.planning.saved import is_saved_plan, load

    if is_saved_plan(job_file):
        if settings:
            raise click.UsageError("a saved plan cannot be changed: pass the job file instead")
        return load(job_file)
    checked = check(job_file, settings=settings)
    plan = make_plan(checked)
    checked.require_launchable()
    return plan
