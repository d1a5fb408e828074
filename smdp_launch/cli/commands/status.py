from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import SmdpError
    from smdp_launch.jobs.checkpoints.listing import Checkpoints
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.jobs.status.description import Description
    from smdp_launch.run_metrics.run import RunMetrics


@click.command("status")
@options.job_name
@options.region
@options.json_document
def command(name: str | None, region: str | None, as_json: bool) -> None:
    """Show the status of job NAME (default: the latest): its current step, the time of each step, and its outcome.

    For a sweep, show its trials, as `trials` does.

    The exit code is 0 for every outcome. The exit code of `follow` shows how the job ended.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.job.status import RunNow, print_status, status_json
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.sweeps import show_sweep, sweep_of
    from smdp_launch.jobs.run import network_of
    from smdp_launch.jobs.status.cost import price_of, usd

    launched = sweep_of(name, region)
    if launched is not None:
        show_sweep(launched.job, launched.where, launched.state, as_json)
        return
    job = attach(name, region=region)
    job.on_waiting = print_retry
    with job.connected() as clients:  # one connection for both calls: a local cloud starts only once
        description = job.describe()
        checkpoints = _checkpoints(job, description)
        metrics = _metrics(clients, description)
        network = network_of(clients, description, metrics) if metrics is not None else None
    run = RunNow(metrics, usd(description, price_of(description, job.where)), network)
    if as_json:
        print_document(status_json(job, description, checkpoints, run))
    else:
        print_status(job, description, checkpoints, run)


def _metrics(clients: Clients, description: Description) -> RunMetrics | SmdpError | None:
    """From the last minutes of the log; None before the hosts write one."""
    from smdp_launch.jobs.run import recent_metrics

    has_log = any(one.status in ("Training", "Uploading") for one in description.steps)
    return recent_metrics(clients, description) if has_log else None


def _checkpoints(job: Job, description: Description) -> Checkpoints | SmdpError | None:
    """The checkpoints, or the error: the status is shown without them."""
    from smdp_launch.errors import SmdpError

    try:
        return job.checkpoints(description)
    except SmdpError as error:
        return error
