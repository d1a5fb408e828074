from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.local_runs import cloud_for, given_flags, local_flags, local_request, plan_here, run_here

if TYPE_CHECKING:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.cli.render.events import EventView
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.plan import Plan


@click.command("launch", short_help="Run a job here or on SageMaker, and follow it to its end.")
@options.job_file
@options.settings
@click.option("--local", is_flag=True, help="Run it on this machine, on simulated hosts.")
@local_flags("With --local: ")
@click.option("--detach", "-d", is_flag=True, help="Launch it and leave it: `follow` shows it later.")
@options.ignore
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--yes", "-y", is_flag=True, help="Launch without asking.")
@options.events
def command(
    job_file: Path,
    settings: tuple[str, ...],
    local: bool,
    detach: bool,
    ignore: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run JOBFILE (default ./job.yaml), or a plan that `plan --out` saved, and follow it to its end.

    With --local the job runs on this machine: the same request, entrypoint and script, on simulated hosts. Ctrl-C
    asks whether to stop the job. The exit code tells how it ended (docs/exit-codes.md).
    """
    from smdp_launch.checking.job import check_job
    from smdp_launch.planning.saved import is_saved_plan

    given = given_flags(flags)
    if given and not local:
        raise click.UsageError(f"{given[0]} goes with --local")
    manner = Manner(dry_run, yes, detach, as_json)
    if is_saved_plan(job_file):
        if local or settings:
            raise click.UsageError("a saved plan is launched on AWS as it is: give the job file with --local or --set")
        return _launch_saved(job_file, manner, ignore)
    asked = local_request(flags) if local else None
    checked = check_job(job_file, asked, settings=settings)
    checked.require()
    if asked is not None:
        return _launch_local(checked, asked, manner)
    return _launch_aws(checked, manner, ignore)


@dataclass(frozen=True)
class Manner:
    """How far a launch goes, and to whom it speaks."""

    dry_run: bool
    yes: bool
    detach: bool
    as_json: bool


def _launch_local(checked: CheckedJob, asked: LocalRequest, manner: Manner) -> ExitCode:
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.launch import show_local_end, show_local_start
    from smdp_launch.cli.shared.following import submit_and_follow, submit_shown
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.local_clouds import local_cloud_folder
    from smdp_launch.localcloud.client import connect as localcloud

    show_diagnostics(checked.diagnostics)
    plan = plan_here(checked, run_here(checked, asked))
    if manner.dry_run:
        _show_planned(plan, manner)
        return ExitCode.OK
    if not manner.as_json:
        show_local_start(plan)
    with cloud_for(plan) as clients:
        if manner.detach:
            submit_shown(clients, plan)
        else:
            result = submit_and_follow(clients, plan, _events(plan, manner))
    if manner.detach:
        _show_left(plan, manner)
        return ExitCode.OK
    if result is None:
        return ExitCode.INTERRUPTED
    if not manner.as_json:
        show_local_end(plan, result, lambda bucket, key: localcloud.object_path(local_cloud_folder(), bucket, key))
    return result.outcome.exit_code


def _events(plan: Plan, manner: Manner) -> EventView | None:
    from smdp_launch.cli.render.events import EventView

    return EventView(plan.job, _where(plan), created=True) if manner.as_json else None


def _show_planned(plan: Plan, manner: Manner) -> None:
    from smdp_launch.cli.render.launch import show_local_start
    from smdp_launch.cli.render.next import say_next
    from smdp_launch.cli.render.plan import show_plan

    if manner.as_json:
        click.echo(json.dumps(plan.to_json()))
        return
    show_plan(plan)
    if plan.local is not None:
        show_local_start(plan)
    say_next(_without_dry_run())


def _show_left(plan: Plan, manner: Manner) -> None:
    """A job that is launched and left to itself."""
    from smdp_launch.cli.render.events import show_job
    from smdp_launch.cli.render.launch import show_detached

    if manner.as_json:
        show_job(plan.job, _where(plan))
    else:
        show_detached(plan.job)


def _where(plan: Plan) -> str:
    from smdp_launch.jobs.records.history import LOCAL

    return LOCAL if plan.local is not None else plan.spec.region


def _launch_aws(checked: CheckedJob, manner: Manner, ignore: Sequence[str]) -> ExitCode:
    from smdp_launch.checking.job import require_launchable
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.rehearsals.saved import with_rehearsals

    plan = with_rehearsals(make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16)))
    return _submit_plan(plan, manner, ignore, lambda: require_launchable(checked))


def _launch_saved(path: Path, manner: Manner, ignore: Sequence[str]) -> ExitCode:
    """What ``plan --out`` wrote. Whatever was wrong with it was told then."""
    from smdp_launch.planning.saved import load

    return _submit_plan(load(path), manner, ignore, lambda: None)


def _submit_plan(plan: Plan, manner: Manner, ignore: Sequence[str], require: Callable[[], None]) -> ExitCode:
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.launch import show_end
    from smdp_launch.cli.render.plan import show_plan
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.cli.shared.confirming import confirm
    from smdp_launch.cli.shared.following import submit_and_follow, submit_shown
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.preflight.run import require_account
    from smdp_launch.jobs.records.history import remember_plan
    from smdp_launch.jobs.service.clients import connect_aws

    show_diagnostics(plan.diagnostics)
    if manner.dry_run:
        _show_planned(plan, manner)
        return ExitCode.OK
    if not manner.as_json:
        show_plan(plan)
    require()
    confirm(manner.yes, ask=not manner.as_json)
    clients = connect_aws(plan.spec.region)
    clients.tell = show_waiting
    require_account(clients, plan, ignore)
    remember_plan(plan, datetime.now(timezone.utc))
    if manner.detach:
        submit_shown(clients, plan)
        _show_left(plan, manner)
        return ExitCode.OK
    result = submit_and_follow(clients, plan, _events(plan, manner))
    if result is None:
        return ExitCode.INTERRUPTED
    if not manner.as_json:
        show_end(plan.job, plan.spec.region, result)
    return result.outcome.exit_code


def _without_dry_run() -> str:
    return shlex.join(["smdp-launch", *(one for one in sys.argv[1:] if one != "--dry-run")])
