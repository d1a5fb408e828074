from __future__ import annotations

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options


@click.command("trials")
@options.job_name
@options.region
@options.json_document
def command(name: str | None, region: str | None, as_json: bool) -> None:
    """List the trials of sweep NAME (default: the latest launch), the best first: values, result, status and time.

    A trial is a training job: `logs`, `status` and `download` accept its name.
    """
    from smdp_launch.cli.render.sweeps import print_sweep
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.sweeps import record_sweep_end, sweep_of
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.service.clients import connection
    from smdp_launch.jobs.sweeps import describe_sweep

    launched = sweep_of(name, region)
    if launched is None and (name is None or region is None):
        what = f"{name} is no sweep" if name is not None else "the latest launch is no sweep, or there is none"
        raise Refused(f"{what} of this folder: give the name of one (`smdp-launch list`), or with --region any")
    found = launched.job if launched is not None else str(name)
    where, state = (launched.where, launched.state) if launched is not None else (region, None)
    with connection(where, state)() as clients:
        clients.on_waiting = print_retry
        sweep = describe_sweep(clients, found)
    record_sweep_end(sweep)
    if as_json:
        print_document(sweep.to_json())
    else:
        print_sweep(sweep)
