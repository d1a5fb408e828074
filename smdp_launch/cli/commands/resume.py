from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("resume")
@options.job_name
@options.detach
@click.option("--dry-run", is_flag=True, help="Show the new job and exit.")
@options.yes
@click.option(
    "--ignore",
    type=click.Choice(["SMDP710"]),
    help="Resume the job although another job uses its checkpoints, or although this is unknown.",
)
@options.report
@options.region
@options.json_events
def command(
    name: str | None,
    detach: bool,
    dry_run: bool,
    yes: bool,
    ignore: str | None,
    report: Path | None,
    region: str | None,
    as_json: bool,
) -> ExitCode:
    """Launch a new job that continues job NAME (default: the latest) from its checkpoints.

    The new job has a new name. It uses the checkpoint location, data, source archive and limits of job NAME. The
    command refuses a job that completed, is still running, has no checkpoints, or was resumed before.

    For a sweep that has ended, the command launches a new sweep that uses the results of the old trials. The new sweep
    runs as many trials as the old sweep has trials without a result. If all old trials have a result, the new sweep
    runs the same number of trials again. The command refuses a complete grid, because it has no further trials.
    """
    from smdp_launch.cli.shared.sweeps import resumed_sweep, sweep_of

    sweep = sweep_of(name, region)
    if sweep is not None:
        return resumed_sweep(sweep, detach=detach, dry_run=dry_run, yes=yes, report=report, as_json=as_json)
    alone = ignore is None
    return _resume_job(
        name, region, detach=detach, dry_run=dry_run, yes=yes, report=report, alone=alone, as_json=as_json
    )


def _resume_job(
    name: str | None,
    region: str | None,
    *,
    detach: bool,
    dry_run: bool,
    yes: bool,
    report: Path | None,
    alone: bool,
    as_json: bool,
) -> ExitCode:
    from smdp_launch.api import attach
    from smdp_launch.cli.render.job import events
    from smdp_launch.cli.render.job.follow import JobLayout
    from smdp_launch.cli.render.job.launch import print_detached, print_end
    from smdp_launch.cli.render.job.resume import print_resumption
    from smdp_launch.cli.render.next_step import command_for_job, print_next
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.confirmation import confirm
    from smdp_launch.cli.shared.follow_session import (
        Answer,
        FollowSession,
        RunOptions,
        interrupts_deferred,
        require_no_interrupt,
    )
    from smdp_launch.cli.shared.retries import follow_retries
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.resume import prepare, resume

    if report is not None and detach:
        raise click.UsageError("--report needs the end of the job: `smdp-launch report` writes it after --detach")
    old = attach(name, region=region)
    old.on_waiting = print_retry
    with old.connected() as clients:
        prepared = prepare(clients, old.name, alone=alone)
        if as_json:
            events.print_resumption(prepared)
        else:
            print_resumption(prepared, old.where)
        if dry_run:
            if not as_json:
                print_next(command_for_job("resume", old.name, old.region))
            return ExitCode.OK
        if old.where != LOCAL:
            confirm(yes, ask=not as_json)
        with interrupts_deferred(clients):
            resume(clients, prepared, old.where)
            job = old.named(prepared.job)
            if detach:
                if as_json:
                    events.print_job(job.name, job.where)
                else:
                    print_detached(job.name)
                require_no_interrupt(clients, job.name)
                return ExitCode.OK
            layout = JobLayout.of_description(prepared.old)
            view = events.EventView(job.name, job.where, created=True) if as_json else None
            followed = RunOptions(job.where, report)
            session = FollowSession(clients, job.name, layout, Answer.STOP, events=view, options=followed)
            result = session.run()
        name, result = follow_retries(clients, job.name, result, followed, as_json=as_json)
        job = job.named(name)
    if result is None:
        return ExitCode.INTERRUPTED
    if not as_json:
        print_end(job.name, job.region, result)
    return result.outcome.exit_code
