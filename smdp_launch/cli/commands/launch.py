from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.capacity import await_capacity, capacity_options, checked_others
from smdp_launch.cli.shared.checking import check
from smdp_launch.cli.shared.help import LaunchCommand
from smdp_launch.cli.shared.local_runs import (
    local_cloud_for,
    local_options,
    local_plan,
    local_request,
    local_run_of,
    require_local,
    require_runnable,
)
from smdp_launch.systems import command_line

if TYPE_CHECKING:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.cli.render.job.events import EventView
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import Plan


@click.command("launch", cls=LaunchCommand)
@options.job_file
@options.settings
@click.option("--local", is_flag=True, help="Run the job on simulated hosts on this machine.")
@local_options
@options.detach
@options.ignore
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@options.yes
@options.require_network
@capacity_options
@options.report
@options.json_events
def command(
    job_file: Path,
    settings: tuple[str, ...],
    local: bool,
    detach: bool,
    ignore: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    require_network: str | None,
    wait_for_capacity: float | None,
    also_files: tuple[Path, ...],
    report: Path | None,
    as_json: bool,
    **local_values: Any,
) -> int:
    """Run JOBFILE (default: job.yaml), or a plan that `plan --out` saved, and follow the job until it ends.

    Without --local, the job runs on SageMaker. With --local, the job runs on simulated hosts: groups of processes on
    this machine. The script and its environment are the same as on SageMaker.

    Ctrl-C asks whether to stop the job or to detach from it. The exit code shows how the job ended
    (docs/reference/exit-codes.md).
    """
    from smdp_launch.planning.saved import is_saved_plan

    require_local("launch", local_values, is_local=local)
    if report is not None and detach:
        raise click.UsageError("--report needs the end of the job: `smdp-launch report` writes it after --detach")
    _require_wait(wait_for_capacity, also_files, local)
    settings = (*settings, *options.network_settings(require_network))
    launch = LaunchOptions(dry_run, yes, detach, as_json, report, wait_for_capacity)
    if is_saved_plan(job_file):
        if local or settings or wait_for_capacity is not None:
            raise click.UsageError(
                "a saved plan cannot be changed, run locally or launched again: pass the job file instead"
            )
        return _launch_saved(job_file, launch, ignore)
    request = local_request(local_values) if local else None
    checked = check(job_file, request, settings=settings)
    checked.require()
    if request is not None:
        return _launch_local(checked, request, launch)
    jobs = [checked, *checked_others(also_files, settings)]
    return _launch_aws(jobs, launch, ignore)


def _require_wait(seconds: float | None, files: tuple[Path, ...], local: bool) -> None:
    if files and seconds is None:
        raise click.UsageError("--also needs --wait-for-capacity")
    if local and seconds is not None:
        raise click.UsageError("--wait-for-capacity is for jobs on AWS: a local run has the hosts of this machine")


@dataclass(frozen=True)
class LaunchOptions:
    """The options of the command that do not change the plan."""

    dry_run: bool
    yes: bool
    detach: bool
    as_json: bool
    report: Path | None = None
    capacity_wait: float | None = None


def _launch_local(checked: CheckedJob, request: LocalRequest, launch: LaunchOptions) -> ExitCode:
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.job.launch import print_end, print_local_end, print_local_start
    from smdp_launch.cli.shared.follow_session import RunOptions, submit_and_follow, submit_detached
    from smdp_launch.cli.shared.retries import follow_retries
    from smdp_launch.cli.shared.submission import require_receivers
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.local_clouds import local_cloud_folder
    from smdp_launch.localcloud.client import connect as localcloud

    print_diagnostics(checked.diagnostics)
    plan = local_plan(checked, local_run_of(checked, request), with_sweep=True)
    if launch.dry_run:
        _print_dry_run(plan, launch)
        return ExitCode.OK
    _require_for_sweep(plan, launch)
    require_runnable(plan)
    require_receivers(plan)
    if not launch.as_json:
        print_local_start(plan)
    with local_cloud_for(plan) as clients:
        if plan.tuning is not None:
            return _run_sweep(clients, plan, launch)
        if launch.detach:
            submit_detached(clients, plan)
        else:
            result = submit_and_follow(clients, plan, _event_view(plan, launch), report=launch.report)
            options = RunOptions(_where(plan), launch.report)
            job, result = follow_retries(clients, plan.job, result, options, as_json=launch.as_json)
    if launch.detach:
        _print_detached(plan, launch)
        return ExitCode.OK
    if result is None:
        return ExitCode.INTERRUPTED
    if not launch.as_json and job != plan.job:
        print_end(job, None, result)
    elif not launch.as_json:
        print_local_end(plan, result, lambda bucket, key: localcloud.object_path(local_cloud_folder(), bucket, key))
    return result.outcome.exit_code


def _event_view(plan: Plan, launch: LaunchOptions) -> EventView | None:
    from smdp_launch.cli.render.job.events import EventView

    return EventView(plan.job, _where(plan), created=True) if launch.as_json else None


def _print_dry_run(plan: Plan, launch: LaunchOptions) -> None:
    from smdp_launch.cli.render.job.launch import print_local_start
    from smdp_launch.cli.render.next_step import print_next
    from smdp_launch.cli.render.plan import print_plan

    if launch.as_json:
        click.echo(json.dumps(plan.to_json()))
        return
    print_plan(plan)
    if plan.local is not None:
        print_local_start(plan)
    print_next(command_line(["smdp-launch", *(one for one in sys.argv[1:] if one != "--dry-run")]))


def _print_detached(plan: Plan, launch: LaunchOptions) -> None:
    from smdp_launch.cli.render.job.events import print_job
    from smdp_launch.cli.render.job.launch import print_detached
    from smdp_launch.cli.render.next_step import print_note

    if launch.as_json:
        print_job(plan.job, _where(plan))
    else:
        print_detached(plan.job)
        if plan.spec.notify is not None and (plan.local is None or plan.spec.notify.local):
            print_note("a command that follows the job sends its notifications: keep `smdp-launch follow` running")


def _where(plan: Plan) -> str:
    from smdp_launch.jobs.records.history import LOCAL

    return LOCAL if plan.local is not None else plan.spec.region


def _require_for_sweep(plan: Plan, launch: LaunchOptions) -> None:
    """Options that are about one job."""
    if plan.tuning is None:
        return
    given = {"--json": launch.as_json, "--wait-for-capacity": launch.capacity_wait}
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} is for one job, and {plan.job_file} has a sweep")


def _run_sweep(clients: Clients, plan: Plan, launch: LaunchOptions) -> ExitCode:
    from smdp_launch.cli.render.next_step import print_next, print_note
    from smdp_launch.cli.render.sweeps import print_sweep
    from smdp_launch.cli.shared.sweeps import report_sweep, submit_sweep
    from smdp_launch.errors import ExitCode, SmdpError
    from smdp_launch.jobs.notifications.notifier import notifier_of
    from smdp_launch.jobs.open_costs import record_sweep_end
    from smdp_launch.jobs.records.outcome import Outcome

    sweep = submit_sweep(clients, plan, detach=launch.detach)
    if launch.detach:
        print_next(f"smdp-launch trials {plan.job}")
        return ExitCode.OK
    if sweep is None:
        return ExitCode.INTERRUPTED
    record_sweep_end(clients, sweep)
    ended = Outcome(sweep.status, sweep.exit_code, sweep.status.lower(), sweep.reason or "")
    with notifier_of(plan.job, print_note) as notifier:
        notifier.end(ended, None)
    print_sweep(sweep)
    if launch.report is not None:
        try:
            report_sweep(clients, sweep, _where(plan), launch.report)
        except SmdpError as error:  # the sweep's outcome decides about the exit code
            print_note(str(error))
    return sweep.exit_code


def _launch_aws(jobs: Sequence[CheckedJob], launch: LaunchOptions, ignore: Sequence[str]) -> ExitCode:
    """Args:
    jobs: the job, and those that may run in its place.
    """
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.planning.prepare import make_plan
    from smdp_launch.rehearsals.saved import with_rehearsals

    plan = with_rehearsals(make_plan(jobs[0]), print_note)
    return _submit_plan(plan, launch, ignore, jobs[0].require_launchable, jobs)


def _launch_saved(path: Path, launch: LaunchOptions, ignore: Sequence[str]) -> ExitCode:
    """Launch a plan of ``plan --out``, which has refused the errors of its job file."""
    from smdp_launch.planning.saved import load

    return _submit_plan(load(path), launch, ignore, lambda: None)


def _submit_plan(
    plan: Plan,
    launch: LaunchOptions,
    ignore: Sequence[str],
    require: Callable[[], None],
    jobs: Sequence[CheckedJob] = (),
) -> ExitCode:
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.cli.render.job.launch import print_end
    from smdp_launch.cli.shared.follow_session import (
        RunOptions,
        follow_created,
        require_no_interrupt,
        submit_and_follow,
        submit_detached,
    )
    from smdp_launch.cli.shared.retries import follow_retries
    from smdp_launch.cli.shared.submission import connect_for
    from smdp_launch.errors import ExitCode

    print_diagnostics(plan.diagnostics)
    if launch.dry_run:
        _print_dry_run(plan, launch)
        return ExitCode.OK
    _require_for_sweep(plan, launch)
    waits = launch.capacity_wait is not None
    clients = connect_for(plan, ignore, yes=launch.yes, as_json=launch.as_json, require=require, records=not waits)
    if plan.tuning is not None:
        return _run_sweep(clients, plan, launch)
    if launch.capacity_wait is not None:
        clients, plan = await_capacity(clients, jobs, launch.capacity_wait, ignore, as_json=launch.as_json)
    if launch.detach:
        if waits:
            require_no_interrupt(clients, plan.job)
        else:
            submit_detached(clients, plan)
        _print_detached(plan, launch)
        return ExitCode.OK
    follow = follow_created if waits else submit_and_follow
    result = follow(clients, plan, _event_view(plan, launch), report=launch.report)
    options = RunOptions(_where(plan), launch.report)
    job, result = follow_retries(clients, plan.job, result, options, as_json=launch.as_json)
    if result is None:
        return ExitCode.INTERRUPTED
    if not launch.as_json:
        print_end(job, plan.spec.region, result)
    return result.outcome.exit_code
