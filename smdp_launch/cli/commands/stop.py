from __future__ import annotations

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options


@click.command("stop")
@options.job_name
@click.option("--yes", "-y", is_flag=True, hidden=True, expose_value=False)  # this command never asks
@options.region
@options.json_document
def command(name: str | None, region: str | None, as_json: bool) -> None:
    """Stop job NAME (default: the latest).

    The training script gets SIGTERM and has 120 s to save its state. The command does nothing to a job that has ended.
    A sweep is stopped with its trials.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.job.status import print_stopped, stop_document, stopped_json
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.sweeps import connected, sweep_of
    from smdp_launch.jobs.sweeps import stop_sweep

    launched = sweep_of(name, region)
    if launched is not None:
        with connected(launched.where, launched.state) as clients:
            stopped = stop_sweep(clients, launched.job)
        if as_json:
            print_document(stop_document(launched.job, launched.where, stopped))
        else:
            click.echo(f"{launched.job}: {stopped}")
        return
    job = attach(name, region=region)
    job.on_waiting = print_retry
    status = job.stop()
    if as_json:
        print_document(stopped_json(job, status))
    else:
        print_stopped(job, status, job.describe())
