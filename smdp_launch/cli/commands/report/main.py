from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.shared import options


@click.command("report")
@options.job_name
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write to this file instead of NAME.html. Overwrites the file.",
)
@options.prices
@options.region
def command(name: str | None, output: Path | None, prices: Path | None, region: str | None) -> None:
    """Write an HTML page about job NAME (default: the latest): outcome, metrics, speed, time, hosts and events.

    The job may run or have ended. The page is one file, which needs no network.
    """
    from smdp_launch.api import attach
    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.cli.render.job.report import require_writable, write_report
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.run import read_run

    table = read_prices(prices) if prices is not None else None
    job = attach(name, region=region)
    page = output if output is not None else Path(f"{job.name}.html")
    require_writable(page)
    job.on_waiting = print_retry
    with job.connected() as clients, busy(f"reading the log of {job.name}"):
        run = read_run(clients, job.name, job.where, table)
    write_report(run, page)
