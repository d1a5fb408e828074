from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from smdp_launch.catalog.faults import GRACE, PLACES, Place
from smdp_launch.cli.commands.rehearse.sharing import (
    SECONDS,
    combined,
    duration,
    job,
    print_report,
    run_options,
    within,
    writable_page,
)
from smdp_launch.cli.shared.amounts import Amount, Seconds
from smdp_launch.cli.shared.checking import check
from smdp_launch.cli.shared.groups import Group
from smdp_launch.cli.shared.local_runs import (
    local_cloud_for,
    local_plan,
    local_request,
    local_run_of,
    require_linux,
    require_runnable,
    require_slow_input,
)

if TYPE_CHECKING:
    from smdp_launch.catalog.faults import Kind, Where
    from smdp_launch.cli.render.job.launch import FollowResult
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import LocalRun, Plan
    from smdp_launch.rehearsals.rehearsal import Rehearsal
    from smdp_launch.request.ranks import Rank

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NOWHERE = Place()


_RATE = Amount(
    "rate",
    {"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    1e4,
    1e11,
    "10kB to 100GB",
    "20MB",
)
_LATENCY = Amount("latency", {"ms": 1e-3, "s": 1}, 0, 60, "0ms to 60s", "20ms")


def _place(_: click.Context, __: click.Parameter, text: str | None) -> Place:
    if text is None:
        return Place()
    try:
        return Place.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_when = combined(
    click.option(
        "--after", metavar="SECONDS", type=SECONDS, help="Inject the fault this many seconds after training starts."
    ),
    click.option(
        "--at",
        metavar="[HOST:RANK][@STEP]",
        callback=_place,
        help="Inject the fault into this rank, at this reported step, such as algo-2:3@120.",
    ),
)


@click.group("rehearse", cls=Group)
def command() -> None:
    """Run a job locally, inject a fault, and report whether the job survives it (a rehearsal).

    The faults slow-start, crash and overload are for endpoints: the command serves the model of a local job, and
    injects the fault into the endpoint.

    The local cloud, a server on this machine that runs the job, injects the fault as it would happen on SageMaker. The
    exit code is 0 if the job passes, and 15 if it fails or if the run shows nothing about the job (INCONCLUSIVE). The
    command prints a report in every case.
    """


@command.command("spot", short_help="Interrupt the spot instances and restart them.")
@job
@_when
@duration(5, "Seconds until there is capacity again.")
@click.option(
    "--grace",
    metavar="SECONDS",
    type=Seconds(min=0, max=GRACE),
    default=GRACE,
    show_default=True,
    help="Seconds from SIGTERM to SIGKILL; 0: no notice.",
)
@run_options
def spot(grace: float, **values: Any) -> int:
    """Interrupt JOBFILE (default: job.yaml) as AWS interrupts spot training, and restart it.

    All hosts get SIGTERM and, after the grace period, SIGKILL. New hosts start with the checkpoints from S3. The job
    passes if it resumes from the checkpoints and completes.

    By default, the fault is injected when a checkpoint has been uploaded. --after and --at @STEP override this.
    """
    return _rehearse("spot", grace=grace, **values)


@command.command("resume", short_help="Stop the job, and resume it as a new job.")
@job
@_when
@run_options
def resume(**values: Any) -> int:
    """Stop JOBFILE (default: job.yaml) while it trains, and resume it as `smdp-launch resume` does.

    The job passes if the new job resumes from the checkpoints and completes.

    By default, the job is stopped when a checkpoint has been uploaded. --after and --at @STEP override this.
    """
    return _rehearse("resume", seconds=0.0, grace=GRACE, **values)


@command.command("kill", short_help="Kill a worker.")
@job
@_when
@within("the job must end")
@run_options
def kill(within: float, **values: Any) -> int:
    """Kill a worker of JOBFILE (default: job.yaml), as Linux does when memory runs out.

    The job passes if it ends promptly as failed, and its FailureReason names the rank. A job that hangs instead would
    cost money until its time limit.

    By default, the last rank is killed at the first reported step. --after and --at override this.
    """
    return _rehearse("kill", within=within, seconds=0.0, **values)


@command.command("slow", short_help="Pause a worker for some seconds.")
@job
@_when
@duration(10, "Seconds that the worker is paused.")
@run_options
def slow(**values: Any) -> int:
    """Pause a worker of JOBFILE (default: job.yaml), as if its host were overloaded.

    The job passes if the other workers report the rank, and the job continues and completes.

    By default, the last rank is paused at the first reported step. --after and --at override this.
    """
    return _rehearse("slow", **values)


@command.command("hang", short_help="Make a worker hang.")
@job
@_when
@click.option(
    "--in",
    "where",
    type=click.Choice(PLACES),
    default="computing",
    show_default=True,
    help="Where the worker stops: in its own code, in a collective operation, or in a process of its DataLoader.",
)
@within("a report must name the rank", 300)
@run_options
def hang(within: float, where: Where, **values: Any) -> int:
    """Make a worker of JOBFILE (default: job.yaml) hang, like a lock or a read that never returns.

    The job passes if a report names the rank. With `hang.action: end` the job must also end by itself.

    By default, the last rank stops at the first reported step. --after and --at override this.
    """
    return _rehearse("hang", within=within, where=where, seconds=0.0, **values)


@command.command("late", short_help="Start a host later than the others.")
@job
@click.option("--at", metavar="HOST", callback=_place, help="The host, such as algo-1. Default: the last one.")
@duration(20, "Seconds that the host is late.")
@run_options
def late(**values: Any) -> int:
    """Start a host of JOBFILE (default: job.yaml) later than the other hosts, as if its image were downloaded slowly.

    The job passes if the other hosts wait and the job completes.
    """
    return _rehearse("late", after=None, **values)


@command.command("throttle", short_help="Throttle the AWS calls of the job.")
@job
@_when
@duration(20, "Seconds for which calls are refused.")
@run_options
def throttle(**values: Any) -> int:
    """Refuse three of four AWS calls of JOBFILE (default: job.yaml): calls of its script and of the command line.

    The job passes if it completes. For this, the script must retry its calls.

    By default, throttling starts at the first reported step. --after and --at @STEP override this.
    """
    return _rehearse("throttle", **values)


@command.command("expire", short_help="Expire the credentials while the job runs.")
@job
@_when
@duration(20, "Seconds until the command line gets new credentials.")
@run_options
def expire(**values: Any) -> int:
    """Expire the credentials while JOBFILE (default: job.yaml) runs: those of the command line and of the job's role.

    The job passes if it completes. For this, the AWS clients of the script must get the role's new credentials.

    By default, the credentials expire at the first reported step. --after and --at @STEP override this.
    """
    return _rehearse("expire", **values)


@command.command("slow-input", short_help="Limit how fast the hosts read their channels.")
@job
@click.option(
    "--rate",
    metavar="BYTES",
    type=_RATE,
    default="20MB",
    show_default=True,
    help="Bytes a second for all channels of a host together; 0kB: no limit.",
)
@click.option(
    "--latency",
    metavar="TIME",
    type=_LATENCY,
    default="20ms",
    show_default=True,
    help="Time before the first bytes of each opened file.",
)
@run_options
def slow_input(rate: float, latency: float, **values: Any) -> int:
    """Limit how fast the hosts of JOBFILE (default: job.yaml) read their channels, as slow storage does.

    The hosts read all channels while they train, also those in File mode. The job passes if it completes. The report
    shows how much data the hosts read, and how long the workers waited for data.
    """
    return _rehearse("slow-input", rate=rate, latency=latency, after=None, at=_NOWHERE, seconds=0.0, **values)


def _rehearse(
    kind: Kind,
    *,
    job_file: Path,
    settings: tuple[str, ...],
    after: float | None,
    at: Place,
    seconds: float,
    as_json: bool,
    page: Path | None,
    grace: float = 0.0,
    within: float = 0.0,
    rate: float = 0.0,
    latency: float = 0.0,
    where: Where = "computing",
    **local_values: Any,
) -> ExitCode:
    from smdp_launch.catalog.faults import Fault
    from smdp_launch.cli.render.diagnostics import print_diagnostics
    from smdp_launch.rehearsals.rehearsal import Rehearsal

    require_linux("rehearse")
    if kind == "late" and (at.rank is not None or at.step is not None):
        raise click.BadParameter("a host is late at its start: pass a host alone, such as algo-2", param_hint="--at")
    if kind not in ("kill", "slow", "hang", "late") and (at.host is not None or at.rank is not None):
        raise click.BadParameter(f"{kind} affects all hosts: pass a step alone, such as @120", param_hint="--at")
    if after is not None and at.step is not None:
        raise click.UsageError("--after and a step in --at exclude each other: pass one of them")
    page = writable_page(page)
    request = local_request(local_values)._replace(rehearses=kind)
    checked = check(job_file, request, settings=settings)
    checked.require()
    print_diagnostics(checked.diagnostics)
    if kind == "slow-input":
        require_slow_input(checked, rate, latency)
    run = local_run_of(checked, request)
    if kind == "late" and run.hosts == 1:
        raise click.UsageError("a late host needs another host that waits for it: add --hosts 2")
    victim = _victim(at, run)
    fault = Fault(kind, victim.host, victim.rank, at.step, after, seconds, grace, rate, latency, where)
    plan = local_plan(checked, replace(run, fault=fault))
    action = plan.request["Environment"].get("SMDP_HANG") if kind == "hang" else None
    if action == "ignore":
        raise click.UsageError("`hang.action: ignore` turns the watch off: pass --set hang.action=report")
    return _run(plan, Rehearsal(fault, within, ends=action == "end"), as_json, page)


def _victim(at: Place, run: LocalRun) -> Rank:
    from smdp_launch.planning.faults import target_rank

    try:
        return target_rank(at, run.hosts, run.workers_per_host)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--at") from error


def _run(plan: Plan, rehearsal: Rehearsal, as_json: bool, page: Path | None = None) -> ExitCode:
    from smdp_launch import __version__
    from smdp_launch.cli.render.job.events import EventView
    from smdp_launch.cli.render.rehearse import print_fault
    from smdp_launch.cli.shared.follow_session import submit_and_follow
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.rehearsals.report import report

    require_runnable(plan)
    if not as_json:
        print_fault(plan, rehearsal.fault)
    with local_cloud_for(plan) as clients:
        events = EventView(plan.job, LOCAL, created=True) if as_json else None
        result = submit_and_follow(clients, plan, events, rehearsal)
        if result is not None and rehearsal.fault.kind == "resume":
            result = _resume(clients, plan.job, result, rehearsal, as_json)
    if result is None:
        return ExitCode.INTERRUPTED
    print_report(report(plan, rehearsal, __version__), as_json, page)
    return ExitCode.OK if rehearsal.verdict().passed else ExitCode.REHEARSAL_FAILED


def _resume(
    clients: Clients, old: str, stopped: FollowResult, rehearsal: Rehearsal, as_json: bool
) -> FollowResult | None:
    """Continue a stopped job as a new job from its checkpoints. None if the user detached from the new job."""
    from smdp_launch.cli.render.job import resume as render
    from smdp_launch.cli.render.job.events import EventView, print_resumption
    from smdp_launch.cli.render.job.follow import JobLayout
    from smdp_launch.cli.shared.follow_session import Answer, FollowSession, follow_local, interrupts_deferred
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.resume import prepare, resume

    if stopped.outcome.status != "Stopped" or not rehearsal.has_reported("job_stopped"):
        return stopped
    try:
        prepared = prepare(clients, old)
    except Refused as error:
        rehearsal.refused = str(error)
        return stopped
    if as_json:
        print_resumption(prepared)
    else:
        render.print_resumption(prepared, LOCAL)
    with interrupts_deferred(clients):
        resume(clients, prepared, LOCAL)
        events = EventView(prepared.job, LOCAL, created=True) if as_json else None
        layout = JobLayout.of_description(prepared.old)
        return follow_local(FollowSession(clients, prepared.job, layout, Answer.STOP, events=events, watch=rehearsal))
