from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli import options

if TYPE_CHECKING:
    from smdp_launch.cli.render.events import EventView
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.plan import Plan
    from smdp_launch.planning.prepare import CheckedJob, LocalRequest


def _channel_paths(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """``NAME=PATH`` of each ``--data``."""
    paths: dict[str, Path] = {}
    for value in values:
        name, _equals, path = value.partition("=")
        if not (name and path):
            raise click.BadParameter(f"{value!r} is not NAME=PATH")
        if name in paths:
            raise click.BadParameter(f"channel {name} is given twice")
        paths[name] = Path(path)
    return paths


def _link_speed(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from smdp_launch.localcloud.network import bits_per_second

    if text is not None:
        try:
            bits_per_second(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return text


@click.command("launch", short_help="Run a job here or on SageMaker, and follow it to its end.")
@options.job_file
@options.settings
@click.option("--local", is_flag=True, help="Run it on this machine, on simulated hosts.")
@click.option("--hosts", type=click.IntRange(1, 64), help="With --local: how many hosts to simulate.")
@click.option("--workers-per-host", type=click.IntRange(1, 64), help="With --local: workers on each host.")
@click.option(
    "--data",
    metavar="NAME=PATH",
    multiple=True,
    callback=_channel_paths,
    help="With --local: the data of a channel on this machine; may be repeated.",
)
@click.option("--containers", is_flag=True, help="With --local: run the hosts from the job's image (needs root).")
@click.option(
    "--network",
    metavar="SPEED",
    callback=_link_speed,
    help="With --local: speed of each host's link, such as 1gbit (needs root).",
)
@options.cuda_on_cpu
@click.option("--detach", "-d", is_flag=True, help="Launch it and leave it: `follow` shows it later.")
@options.ignore
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--yes", "-y", is_flag=True, help="Launch without asking.")
@options.events
def command(
    job_file: Path,
    settings: tuple[str, ...],
    local: bool,
    hosts: int | None,
    workers_per_host: int | None,
    data: dict[str, Path],
    containers: bool,
    network: str | None,
    cuda_on_cpu: bool,
    detach: bool,
    ignore: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Run JOBFILE (default ./job.yaml), or a plan that `plan --out` saved, and follow it to its end.

    With --local the job runs on this machine: the same request, entrypoint and script, on simulated hosts. Ctrl-C
    asks whether to stop the job. The exit code tells how it ended (docs/exit-codes.md).
    """
    from smdp_launch.jobs.local import file_systems
    from smdp_launch.planning.prepare import LocalRequest, check_job
    from smdp_launch.planning.saved import is_saved_plan

    given = [
        flag
        for flag, value in (
            ("--hosts", hosts),
            ("--workers-per-host", workers_per_host),
            ("--data", data),
            ("--containers", containers),
            ("--network", network),
            ("--cuda-on-cpu", cuda_on_cpu),
        )
        if value
    ]
    if given and not local:
        raise click.UsageError(f"{given[0]} goes with --local")
    manner = Manner(dry_run, yes, detach, as_json)
    if is_saved_plan(job_file):
        if local or settings:
            raise click.UsageError("a saved plan is launched on AWS as it is: give the job file with --local or --set")
        return _launch_saved(job_file, manner, ignore)
    asked = None
    if local:
        asked = LocalRequest(hosts, workers_per_host, data, containers, network, file_systems(), cuda_on_cpu)
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
    from smdp_launch.cli.following import submit_and_follow, submit_shown
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.launch import show_local_end, show_local_start
    from smdp_launch.cli.render.waiting import show_waiting
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.clients import local_cloud
    from smdp_launch.jobs.history import remember_plan
    from smdp_launch.jobs.local import local_cloud_folder
    from smdp_launch.jobs.submit import seed
    from smdp_launch.localcloud import client as localcloud
    from smdp_launch.planning.prepare import local_run, make_plan, with_isolation

    show_diagnostics(checked.diagnostics)
    now = datetime.now(timezone.utc)
    run = local_run(checked, asked, len(os.sched_getaffinity(0)))
    run = with_isolation(run, checked, localcloud.isolation().reason)
    plan = make_plan(checked, now, secrets.randbelow(1 << 16), run)
    if asked.containers:
        _require_image(plan)
    if asked.network is not None:
        _require_links()
    if manner.dry_run:
        _show_planned(plan, manner)
        return ExitCode.OK
    if not manner.as_json:
        show_local_start(plan)
    state = local_cloud_folder()
    with local_cloud(state)() as clients:
        clients.tell = show_waiting
        seed(clients, plan, run.data)
        remember_plan(plan, now, state)
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
        show_local_end(plan, result, lambda bucket, key: localcloud.object_path(state, bucket, key))
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
    from smdp_launch.jobs.history import LOCAL

    return LOCAL if plan.local is not None else plan.spec.region


def _require_links() -> None:
    """Now, not in the job: whether hosts can have links of a chosen speed here.

    Raises:
        EnvironmentProblem: they cannot.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud import network

    reason = network.shaping_refusal()
    if reason is not None:
        raise EnvironmentProblem(f"{reason}; launch without --network for hosts that share this machine's loopback")


def _require_image(plan: Plan) -> None:
    """Now, not in the job: whether the hosts can run from its image here.

    Raises:
        EnvironmentProblem: they cannot.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud import containers

    try:
        containers.check(plan.request["AlgorithmSpecification"]["TrainingImage"])
    except containers.ContainerError as error:
        raise EnvironmentProblem(f"{error}; another image is chosen with --set image=NAME:TAG") from error


def _launch_aws(checked: CheckedJob, manner: Manner, ignore: Sequence[str]) -> ExitCode:
    from smdp_launch.planning.prepare import make_plan, require_launchable

    plan = make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16))
    return _submit_plan(plan, manner, ignore, lambda: require_launchable(checked))


def _launch_saved(path: Path, manner: Manner, ignore: Sequence[str]) -> ExitCode:
    """What ``plan --out`` wrote. Whatever was wrong with it was told then."""
    from smdp_launch.planning.saved import load

    return _submit_plan(load(path), manner, ignore, lambda: None)


def _submit_plan(plan: Plan, manner: Manner, ignore: Sequence[str], require: Callable[[], None]) -> ExitCode:
    from smdp_launch.cli.confirming import confirm
    from smdp_launch.cli.following import submit_and_follow, submit_shown
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.cli.render.launch import show_end
    from smdp_launch.cli.render.plan import show_plan
    from smdp_launch.cli.render.waiting import show_waiting
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.clients import connect_aws
    from smdp_launch.jobs.history import remember_plan
    from smdp_launch.jobs.preflight import require_account

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
        show_end(plan, result)
    return result.outcome.exit_code


def _without_dry_run() -> str:
    return shlex.join(["smdp-launch", *(one for one in sys.argv[1:] if one != "--dry-run")])
