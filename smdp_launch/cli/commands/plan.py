from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check


@click.command("plan")
@options.job_file
@options.settings
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON (docs/reference/plan.md).")
@click.option("--request", "as_request", is_flag=True, help="Print only the request that a launch sends, as JSON.")
@click.option("--origins", "with_origins", is_flag=True, help="Also show the source of each value.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the plan to this file. `launch FILE` submits this plan, and refuses it if the source has changed.",
)
def command(
    job_file: Path, settings: tuple[str, ...], as_json: bool, as_request: bool, with_origins: bool, out: Path | None
) -> None:
    """Show the request that a launch of JOBFILE (default: job.yaml) would send. The command needs no network and no
    credentials.

    To submit the request with the AWS CLI:

    \b
    smdp-launch plan --request > request.json
    aws sagemaker create-training-job --cli-input-json file://request.json

    For a job file with a sweep, the command is create-hyper-parameter-tuning-job.
    """  # noqa: D301 - click reads \b as "keep the line breaks of this paragraph"
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.cli.render.plan import print_origins, print_plan, print_plan_next
    from smdp_launch.errors import JobFileRefused
    from smdp_launch.planning.plan import refused_json
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.planning.saved import save
    from smdp_launch.rehearsals.saved import with_rehearsals

    if as_json and as_request:
        raise click.UsageError("--json and --request exclude each other")
    checked = check(job_file, settings=settings)
    try:
        plan = with_rehearsals(make_plan(checked), print_note)
    except JobFileRefused:
        if as_json:
            print_document(refused_json(str(job_file), list(checked.diagnostics)))
        raise
    if out is not None:
        checked.require_launchable()
        save(plan, out)
    if as_json or as_request:
        print_document(plan.to_json() if as_json else plan.submitted)
        return
    print_diagnostics(checked.diagnostics)
    print_plan(plan)
    if with_origins:
        print_origins(plan)
    print_plan_next(plan, out)
