from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("resume", short_help="Go on from the checkpoints of a job that was cut off.")
@options.job_name
@click.option("--detach", "-d", is_flag=True, help="Launch it and leave it: `follow` shows it later.")
@click.option("--dry-run", is_flag=True, help="Show what would be launched and stop.")
@click.option("--yes", "-y", is_flag=True, help="Launch without asking.")
@options.region
@options.events
def command(name: str | None, detach: bool, dry_run: bool, yes: bool, region: str | None, as_json: bool) -> ExitCode:
    """Launch job NAME (default: `latest`) once more, from its request and its checkpoints.

    The new job has a name of its own and the old one's checkpoint location, data, source archive and limits. One that
    has completed, still runs, has left no checkpoints or was resumed before is refused.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render import events
    from smdp_launch.cli.render.follow import Shape
    from smdp_launch.cli.render.launch import show_detached, show_end
    from smdp_launch.cli.render.next import command_for_job, say_next
    from smdp_launch.cli.render.resume import show_resumption
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.cli.shared.confirming import confirm
    from smdp_launch.cli.shared.following import Answer, Following, interrupts_held
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.resume import prepare, resume

    old = attach(name, region=region)
    old.tell = show_waiting
    with old.reached() as clients:
        prepared = prepare(clients, old.name)
        if as_json:
            events.show_resumption(prepared)
        else:
            show_resumption(prepared, old.where)
        if dry_run:
            if not as_json:
                say_next(command_for_job("resume", old.name, old.region))
            return ExitCode.OK
        if old.where != LOCAL:
            confirm(yes, ask=not as_json)
        with interrupts_held(clients):
            resume(clients, prepared, old.where)
            job = old.named(prepared.job)
            if detach:
                if as_json:
                    events.show_job(job.name, job.where)
                else:
                    show_detached(job.name)
                return ExitCode.OK
            shape = Shape.of_description(prepared.old)
            view = events.EventView(job.name, job.where, created=True) if as_json else None
            followed = Following(clients, job.name, shape, Answer.STOP, events=view).run()
    if followed is None:
        return ExitCode.INTERRUPTED
    if not as_json:
        show_end(job.name, job.region, followed)
    return followed.outcome.exit_code
