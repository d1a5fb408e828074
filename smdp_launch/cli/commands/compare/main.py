from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.completers import launched_jobs


@click.command("compare")
@click.argument("first", metavar="A", shell_complete=launched_jobs)
@click.argument("second", metavar="B", shell_complete=launched_jobs)
@options.prices
@options.region
@options.json_document
def command(first: str, second: str, prices: Path | None, region: str | None, as_json: bool) -> None:
    """Compare two jobs: settings that differ, final metrics, speed, where the time went, and cost.

    A and B are names of jobs, or `latest`. A job may run or have ended.
    """
    from smdp_launch.api import attach
    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.cli.render.job.compare import compare_json, print_comparison
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.run import Run, read_run

    table = read_prices(prices) if prices is not None else None
    jobs = [attach(name, region=region) for name in (first, second)]

    def read(index: int) -> Run:
        job = jobs[index]
        job.on_waiting = print_retry
        with job.connected() as clients, busy(f"reading the log of {job.name}"):
            return read_run(clients, job.name, job.where, table)

    runs = (read(0), read(1))
    if as_json:
        print_document(compare_json(*runs))
    else:
        print_comparison(*runs)
