from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared import options
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
    from smdp_launch.cli.render.job.launch import FollowResult
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.plan import Plan


@click.command("probe", cls=LaunchCommand)
@options.job_file
@options.settings
@click.option("--local", is_flag=True, help="Run the probe on simulated hosts on this machine.")
@local_options
@options.ignore
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@options.yes
@options.require_network
@options.json_document
def command(
    job_file: Path,
    settings: tuple[str, ...],
    local: bool,
    ignore: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    require_network: str | None,
    as_json: bool,
    **local_values: Any,
) -> int:
    """Measure the network between the hosts of JOBFILE (default: job.yaml), and print a table of all links.

    The probe is a separate job with the same image, hosts and network. It reads no data and does not run the script.
    The probe takes about a minute, and is stopped after five minutes. If a link has less than half of its known rate,
    or less than --require-network, the exit code is 10.

    With --local, the probe runs on this machine: add --network SPEED for links of a known speed.
    """
    from smdp_launch.jobs.network_probe import probe_job

    require_local("probe", local_values, is_local=local)
    request = local_request(local_values) if local else None
    checked = check(job_file, request, settings=(*settings, *options.network_settings(require_network)))
    probe = _Probe(dry_run, yes, as_json)
    job = probe_job(checked, request.hosts if request is not None else None)
    return _probe_locally(job, request, probe) if request is not None else _probe_on_aws(job, probe, ignore)


@dataclass(frozen=True)
class _Probe:
    """The options that do not change the plan."""

    dry_run: bool
    yes: bool
    as_json: bool


def _probe_locally(job: CheckedJob, request: LocalRequest, probe: _Probe) -> ExitCode:
    from smdp_launch.cli.render.job.launch import print_local_start
    from smdp_launch.errors import EnvironmentProblem, ExitCode

    if request.network is None:
        raise EnvironmentProblem(
            "the simulated hosts share this machine's loopback interface, which has no links to measure: add "
            "--network SPEED (needs root), such as --network 1gbit"
        )
    plan = local_plan(job, local_run_of(job, request))
    if probe.dry_run:
        _print_dry_run(plan, probe)
        return ExitCode.OK
    require_runnable(plan)
    if not probe.as_json:
        print_local_start(plan)
    with local_cloud_for(plan) as clients:
        return _end(plan, probe, _follow(clients, plan, probe))


def _probe_on_aws(job: CheckedJob, probe: _Probe, ignore: Sequence[str]) -> ExitCode:
    from smdp_launch.cli.shared.submission import connect_for
    from smdp_launch.errors import ExitCode
    from smdp_launch.planning.prepare import make_plan

    plan = make_plan(job, with_sweep=False)
    if probe.dry_run:
        _print_dry_run(plan, probe)
        return ExitCode.OK
    clients = connect_for(plan, ignore, yes=probe.yes, as_json=probe.as_json, require=job.require_launchable)
    return _end(plan, probe, _follow(clients, plan, probe))


def _follow(clients: Any, plan: Plan, probe: _Probe) -> FollowResult | None:
    from smdp_launch.cli.render.job.network import SilentView
    from smdp_launch.cli.shared.follow_session import submit_and_follow
    from smdp_launch.jobs.records.history import LOCAL

    where = LOCAL if plan.local is not None else plan.spec.region
    view = SilentView(plan.job, where) if probe.as_json else None
    return submit_and_follow(clients, plan, view, quiet=True)


def _end(plan: Plan, probe: _Probe, result: FollowResult | None) -> ExitCode:
    from smdp_launch.cli.render.job.network import print_probe, probe_json
    from smdp_launch.cli.render.json_output import print_document
    from smdp_launch.errors import ExitCode

    if result is None:
        return ExitCode.INTERRUPTED
    if probe.as_json:
        print_document(probe_json(plan, result))
    else:
        print_probe(plan, result)
    return result.outcome.exit_code


def _print_dry_run(plan: Plan, probe: _Probe) -> None:
    from smdp_launch.cli.render.next_step import print_next
    from smdp_launch.cli.render.plan import print_plan

    if probe.as_json:
        click.echo(json.dumps(plan.to_json()))
        return
    print_plan(plan)
    print_next(command_line(["smdp-launch", *(one for one in sys.argv[1:] if one != "--dry-run")]))
