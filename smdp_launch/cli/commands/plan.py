from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone
from pathlib import Path

import click

from smdp_launch.cli.shared import options


@click.command("plan", short_help="Show exactly what a launch would submit.")
@options.job_file
@options.settings
@click.option("--json", "as_json", is_flag=True, help="The whole plan as one JSON document (docs/plan.md).")
@click.option("--request", "as_request", is_flag=True, help="Only the CreateTrainingJob request, as JSON.")
@click.option("--origins", "with_origins", is_flag=True, help="Also show where each value came from.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the plan; `launch FILE` submits it byte for byte, or refuses if the source changed.",
)
def command(
    job_file: Path, settings: tuple[str, ...], as_json: bool, as_request: bool, with_origins: bool, out: Path | None
) -> None:
    """Show what a launch of JOBFILE (default ./job.yaml) would submit, without network or credentials.

    The request can be piped: smdp-launch plan --request > request.json, then
    aws sagemaker create-training-job --cli-input-json file://request.json.
    """
    from smdp_launch.checking.job import check_job, require_launchable
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.plan import show_next, show_origins, show_plan
    from smdp_launch.errors import JobFileRefused
    from smdp_launch.planning.plan import refused_json
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.planning.saved import save
    from smdp_launch.rehearsals.saved import with_rehearsals

    if as_json and as_request:
        raise click.UsageError("--json and --request exclude each other")
    checked = check_job(job_file, settings=settings)
    try:
        plan = with_rehearsals(make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16)))
    except JobFileRefused:
        if as_json:
            click.echo(json.dumps(refused_json(str(job_file), list(checked.diagnostics)), indent=2, ensure_ascii=False))
        raise
    if out is not None:
        require_launchable(checked)
        save(plan, out)
    if as_json or as_request:
        click.echo(json.dumps(plan.to_json() if as_json else plan.request, indent=2, ensure_ascii=False))
        return
    show_diagnostics(checked.diagnostics)
    show_plan(plan)
    if with_origins:
        show_origins(plan)
    show_next(plan, out)
