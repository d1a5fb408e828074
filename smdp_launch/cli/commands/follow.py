from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("follow", short_help="Show a job from its first line to its end.")
@options.job_name
@click.option("--quiet", "-q", is_flag=True, help="Leave out the hosts' lines: status, progress, failures, the end.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Leave after so long, with code 14.")
@options.region
@options.events
def command(name: str | None, quiet: bool, timeout: float | None, region: str | None, as_json: bool) -> ExitCode:
    """Show job NAME (default: `latest`) from its first line on until it ends.

    Lines of several hosts come in the order of their times, held back up to 2 s for that. Throttling, a lost network
    and expired credentials are waited for. Ctrl-C asks whether to stop the job or to leave it. The exit code tells
    how the job ended (docs/exit-codes.md).
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.events import EventView
    from smdp_launch.cli.render.launch import show_end
    from smdp_launch.cli.render.next import command_for_job, say_next
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.cli.shared.following import Answer, Following, interrupts_held
    from smdp_launch.errors import ExitCode, WaitTimedOut

    job = attach(name, region=region)
    job.tell = show_waiting
    with job.reached() as clients, interrupts_held(clients):
        events = EventView(job.name, job.where, quiet=quiet) if as_json else None
        following = Following(clients, job.name, None, Answer.DETACH, timeout, quiet, events)
        try:
            followed = following.run()
        except WaitTimedOut:
            if not as_json:
                say_next(command_for_job("follow", job.name, job.region))
            raise
    if followed is None:
        return ExitCode.INTERRUPTED
    if not as_json:
        show_end(job.name, job.region, followed)
    return followed.outcome.exit_code
