from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.amounts import Seconds

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("follow")
@options.job_name
@click.option("--quiet", "-q", is_flag=True, help="Omit the hosts' logs: show status, progress, failures and the end.")
@click.option(
    "--timeout", type=Seconds(min=0), metavar="SECONDS", help="Stop following after this time (exit code 14)."
)
@options.report
@options.prices
@options.region
@options.json_events
def command(
    name: str | None,
    quiet: bool,
    timeout: float | None,
    report: Path | None,
    prices: Path | None,
    region: str | None,
    as_json: bool,
) -> ExitCode:
    """Show job NAME (default: the latest) from its first log line until it ends.

    The logs of several hosts are merged by time, with a delay of up to 2 s. The command waits while AWS throttles
    calls, the network is down or credentials are expired.

    If the job fails while the command runs, the command resumes the job as `retries` of the job file describes.

    Ctrl-C asks whether to stop the job or to detach from it. The exit code shows how the job ended
    (docs/reference/exit-codes.md).
    """
    from smdp_launch.api import attach
    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.cli.render.job.events import EventView
    from smdp_launch.cli.render.job.launch import print_end
    from smdp_launch.cli.render.next_step import command_for_job, print_next
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import Answer, FollowSession, RunOptions, interrupts_deferred
    from smdp_launch.cli.shared.retries import TimeLimit, follow_retries
    from smdp_launch.errors import ExitCode, WaitTimedOut

    table = read_prices(prices) if prices is not None else None
    job = attach(name, region=region)
    job.on_waiting = print_retry
    with job.connected() as clients, interrupts_deferred(clients):
        events = EventView(job.name, job.where, quiet=quiet) if as_json else None
        run_options, limit = RunOptions(job.where, report, table), TimeLimit(timeout)
        session = FollowSession(clients, job.name, None, Answer.DETACH, timeout, quiet, events, options=run_options)
        try:
            result = session.run()
        except WaitTimedOut:
            if not as_json:
                print_next(command_for_job("follow", job.name, job.region))
            raise
        if not session.had_ended:  # a look at a job that failed long ago must not launch a new one
            last, result = follow_retries(
                clients,
                job.name,
                result,
                run_options,
                as_json=as_json,
                answer=Answer.DETACH,
                quiet=quiet,
                limit=limit,
            )
            job = job.named(last)
    if result is None:
        return ExitCode.INTERRUPTED
    if not as_json:
        print_end(job.name, job.region, result)
    return result.outcome.exit_code
