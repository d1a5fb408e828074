from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("deploy")
@options.job_name
@click.option(
    "--file",
    "job_file",
    metavar="JOBFILE",
    type=click.Path(path_type=Path),
    help="Job file with the section `serve`. Default: the file from which the job was launched.",
)
@options.serve_settings
@click.option("--local", is_flag=True, help="Serve the model of a local job on this machine.")
@click.option(
    "--input",
    "input_",
    metavar="PATH",
    type=click.Path(exists=True, path_type=Path),
    help="With --local and `kind: batch`: the file or folder to read instead of serve.input.",
)
@options.ttl
@click.option("--dry-run", "--plan", is_flag=True, help="Show the requests and the cost, and exit.")
@click.option("--yes", "-y", is_flag=True, help="Deploy without confirmation.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint answers requests (the default).")
@click.option(
    "--ignore",
    metavar="CODE",
    type=click.Choice(["SMDP824"], case_sensitive=False),
    help="Skip the quota check with this code.",
)
@options.region
@options.json_document
def command(
    name: str | None,
    job_file: Path | None,
    settings: tuple[str, ...],
    local: bool,
    input_: Path | None,
    ttl: int | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    ignore: str | None,
    region: str | None,
    as_json: bool,
) -> ExitCode:
    """Serve the model of job NAME (default: the latest). The section `serve` of the job file has the settings.

    The command creates a model, an endpoint configuration and an endpoint, all with the name of the job. If one
    creation fails, the command deletes the resources that it has created. An endpoint costs money until it is deleted:
    by `undeploy`, by `endpoints --expire`, or by AWS at the end of its lifetime if `serve.expiry_role` is set. With
    `kind: batch`, the command creates a model and a transform job. The transform job ends when all input is processed.
    """
    from smdp_launch.cli.shared.local_runs import require_linux

    if local:
        require_linux("deploy --local")
    more = () if ttl is None else (f"serve.lifetime={ttl}",)
    from smdp_launch.cli.commands.deploy.session import DeployOptions, deploy

    if input_ is not None and not local:
        raise click.UsageError("--input requires --local: on AWS, a transform reads serve.input")
    chosen = DeployOptions(local, dry_run, yes, wait, as_json, input_, ignore is not None)
    try:
        return deploy(name, job_file, (*settings, *more), region, chosen)
    except (KeyboardInterrupt, click.Abort):  # before the first request: later ones defer it
        click.echo("nothing was created", err=True)
        raise
