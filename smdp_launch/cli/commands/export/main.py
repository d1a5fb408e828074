from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check

if TYPE_CHECKING:
    from smdp_launch.planning.exports import System
    from smdp_launch.planning.plan import Plan


@click.command("export")
@options.job_file
@options.settings
@click.option(
    "--to",
    "system",
    required=True,
    metavar="SYSTEM",
    type=click.Choice(("pipeline", "airflow")),
    help="pipeline: a definition for SageMaker Pipelines; airflow: arguments of SageMakerTrainingOperator.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the step to this file.")
@click.option("--upload", is_flag=True, help="Also upload the source archive of the step, with your credentials.")
def command(job_file: Path, settings: tuple[str, ...], system: System, output: Path | None, upload: bool) -> None:
    """Print JOBFILE (default: job.yaml) as a step of a pipeline, as JSON.

    The step contains the request that `plan` shows. The command creates no job. Without --upload, it needs no network
    and no credentials. But the step can run only after the source archive has been uploaded.
    """
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.json_output import json_text
    from smdp_launch.cli.render.next_step import print_next, print_note
    from smdp_launch.draft.user_files import write_file
    from smdp_launch.planning.exports import airflow_operator, exported
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.systems import command_line

    checked = check(job_file, settings=settings)
    print_diagnostics(checked.diagnostics)
    checked.require()
    checked.require_launchable()
    plan = make_plan(checked)
    text = json_text(exported(plan, system))
    if upload:
        _upload(plan)
    if output is None:
        click.echo(text)
    else:
        write_file(output, f"{text}\n")
        print_note(f"wrote {output}")
    if not upload:
        print_note("the source archive is not uploaded: export with --upload before the step runs")
    if plan.spec.checkpoint is not None:
        print_note(
            f"all runs of the step share the checkpoints of {plan.job}: a run continues from those of the one before"
        )
    if system == "airflow":
        print_next(f"give these arguments to {airflow_operator(plan)} (docs/how-to/ci/pipelines.md)")
        return
    file = f"file://{output if output is not None else 'pipeline.json'}"
    words = ["aws", "sagemaker", "create-pipeline", "--region", plan.spec.region, "--pipeline-name", plan.spec.name]
    print_next(command_line([*words, "--pipeline-definition", file, "--role-arn", plan.spec.role]))


def _upload(plan: Plan) -> None:
    from smdp_launch.cli.render.job.upload import UploadView
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.service.clients import connect_aws
    from smdp_launch.jobs.submit import send_source

    clients = connect_aws(plan.spec.region)
    clients.on_waiting = print_retry
    with UploadView() as view:
        send_source(clients, plan, view.show)
