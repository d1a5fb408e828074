from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from smdp_launch.catalog.faults import GRACE
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.groups import Group
from smdp_launch.cli.shared.local_runs import cloud_for, local_flags, local_request, plan_here, run_here

if TYPE_CHECKING:
    from smdp_launch.catalog.faults import Kind, Place
    from smdp_launch.cli.render.launch import Followed
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import LocalRun, Plan
    from smdp_launch.rehearsals.rehearsal import Rehearsal
    from smdp_launch.rehearsals.report import Report
    from smdp_launch.request.ranks import Rank

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Seconds(click.FloatRange):
    """Finite ones; click takes `nan` for a number of any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return found


_SECONDS = _Seconds(min=0, max=86400)


def _place(_: click.Context, __: click.Parameter, text: str | None) -> Place:
    from smdp_launch.catalog.faults import Place

    if text is None:
        return Place()
    try:
        return Place.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _together(*decorators: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        for one in reversed(decorators):
            command = one(command)
        return command

    return add


def _lasts(default: float, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--for", "seconds", metavar="SECONDS", type=_SECONDS, default=default, show_default=True, help=text
    )


_job = _together(options.job_file, options.settings)
_when = _together(
    click.option("--after", metavar="SECONDS", type=_SECONDS, help="Strike so long after training has begun."),
    click.option(
        "--at",
        metavar="[HOST:RANK][@STEP]",
        callback=_place,
        help="Whom to strike, and once which step is reported, such as algo-2:3@120.",
    ),
)
_here = _together(
    local_flags(),
    click.option(
        "--json", "as_json", is_flag=True, help="What happens as JSON documents, one a line, the last of which tells."
    ),
    click.option(
        "--report",
        "page",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.html",
        help="Also write the report as a page for a browser, in place of what FILE held.",
    ),
)


@click.group("rehearse", cls=Group, short_help="Try here how a job meets a fault: spot, kill, throttle and others.")
def command() -> None:
    """Run a job on this machine, have a fault happen to it, and say whether it came through.

    The local cloud does to the job what the platform would. The exit code is 0 if the job came through and 15 if it did
    not, or if the job never met the fault (INCONCLUSIVE); what was seen is printed in every case.
    """


@command.command("spot", short_help="Its spot instances are taken away, and come back.")
@_job
@_when
@_lasts(5, "Seconds until there is capacity again.")
@click.option(
    "--grace",
    type=_Seconds(min=0, max=GRACE),
    default=GRACE,
    show_default=True,
    help="Seconds from SIGTERM to SIGKILL; 0: no notice.",
)
@_here
def spot(grace: float, **given: Any) -> int:
    """Interrupt JOBFILE (default ./job.yaml) as AWS interrupts spot training, and bring it back.

    All hosts get SIGTERM, the grace, and SIGKILL. New hosts start with the checkpoints that had reached S3. The job
    comes through if it goes on from them and completes. It is struck when a checkpoint is kept, unless --after or
    --at @STEP say otherwise.
    """
    return _rehearse("spot", grace=grace, **given)


@command.command("resume", short_help="It is stopped, and a new job goes on from its checkpoints.")
@_job
@_when
@_here
def resume(**given: Any) -> int:
    """Stop JOBFILE (default ./job.yaml) on its way, and go on as `smdp-launch resume` does.

    The job comes through if the new one goes on from its checkpoints and completes. It is stopped when a checkpoint is
    kept, unless --after or --at @STEP say otherwise.
    """
    return _rehearse("resume", seconds=0.0, grace=GRACE, **given)


@command.command("kill", short_help="A worker is killed.")
@_job
@_when
@click.option(
    "--within", type=_SECONDS, default=60, show_default=True, help="Seconds in which the job must have ended."
)
@_here
def kill(within: float, **given: Any) -> int:
    """Kill a worker of JOBFILE (default ./job.yaml), as the system does when memory runs out.

    The job comes through if it ends at once and its FailureReason names the rank: what hangs instead is paid for. The
    last rank is struck at the first step that is reported, unless --after or --at say otherwise.
    """
    return _rehearse("kill", within=within, seconds=0.0, **given)


@command.command("slow", short_help="A worker stands still for a while.")
@_job
@_when
@_lasts(10, "Seconds that it stands still.")
@_here
def slow(**given: Any) -> int:
    """Have a worker of JOBFILE (default ./job.yaml) stand still, as with a slow disk or a busy neighbour.

    The job comes through if the others name the rank and it goes on and completes. The last rank is struck at the first
    step that is reported, unless --after or --at say otherwise.
    """
    return _rehearse("slow", **given)


@command.command("late", short_help="A host starts later than the others.")
@_job
@click.option("--at", metavar="HOST", callback=_place, help="Which host, such as algo-1; the last by default.")
@_lasts(20, "Seconds that it is late.")
@_here
def late(**given: Any) -> int:
    """Start a host of JOBFILE (default ./job.yaml) later than the others, as one whose image takes longer to come.

    The job comes through if the others wait for it and it completes.
    """
    return _rehearse("late", after=None, **given)


@command.command("throttle", short_help="AWS answers that it is asked too often.")
@_job
@_when
@_lasts(20, "Seconds for which calls are refused.")
@_here
def throttle(**given: Any) -> int:
    """Have AWS refuse three of four calls of JOBFILE (default ./job.yaml), its script's and the follower's.

    The job comes through if it completes: its script asks again. It begins at the first step that is reported, unless
    --after or --at @STEP say otherwise.
    """
    return _rehearse("throttle", **given)


@command.command("expire", short_help="Credentials expire while the job runs.")
@_job
@_when
@_lasts(20, "Seconds until there are new credentials for who follows the job.")
@_here
def expire(**given: Any) -> int:
    """Have credentials expire while JOBFILE (default ./job.yaml) runs: the follower's, and those of the job's role.

    The job comes through if it completes: its script's AWS clients ask for the role's new credentials, and do not keep
    the first. It begins at the first step that is reported, unless --after or --at @STEP say otherwise.
    """
    return _rehearse("expire", **given)


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
    **flags: Any,
) -> ExitCode:
    from smdp_launch.catalog.faults import Fault
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import show_diagnostics
    from smdp_launch.rehearsals.rehearsal import Rehearsal

    if kind == "late" and (at.rank is not None or at.step is not None):
        raise click.BadParameter("a host is late at the start: name the host alone, such as algo-2", param_hint="--at")
    if kind not in ("kill", "slow", "late") and (at.host is not None or at.rank is not None):
        raise click.BadParameter(f"{kind} strikes no single host: name a step alone, such as @120", param_hint="--at")
    if after is not None and at.step is not None:
        raise click.UsageError("--after and a step in --at are two moments: give one of them")
    if page is not None:
        page = page.resolve()
        _require_writable(page)
    asked = local_request(flags)._replace(rehearses=kind)
    checked = check_job(job_file, asked, settings=settings)
    checked.require()
    show_diagnostics(checked.diagnostics)
    run = run_here(checked, asked)
    if kind == "late" and run.hosts == 1:
        raise click.UsageError("a single host has nobody that waits for it: give --hosts 2")
    victim = _victim(at, run)
    fault = Fault(kind, victim.host, victim.rank, at.step, after, seconds, grace)
    return _run(plan_here(checked, replace(run, fault=fault)), Rehearsal(fault, within), as_json, page)


def _require_writable(page: Path) -> None:
    """Before the job runs, so that nobody waits for a report that cannot be written."""
    from smdp_launch.errors import EnvironmentProblem

    if page.exists() and not page.is_file():
        raise EnvironmentProblem(f"{page} is no file that a report could replace")
    if not os.access(page.parent, os.W_OK | os.X_OK):
        raise EnvironmentProblem(f"{page} cannot be written: there is no folder {page.parent} that you may write to")


def _victim(at: Place, run: LocalRun) -> Rank:
    from smdp_launch.planning.faults import victim

    try:
        return victim(at, run.hosts, run.workers_per_host)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--at") from error


def _run(plan: Plan, rehearsal: Rehearsal, as_json: bool, page: Path | None = None) -> ExitCode:
    from smdp_launch import __version__
    from smdp_launch.cli.render.events import EventView
    from smdp_launch.cli.render.rehearse import show_fault
    from smdp_launch.cli.shared.following import submit_and_follow
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.rehearsals.report import report

    if not as_json:
        show_fault(plan, rehearsal.fault)
    with cloud_for(plan) as clients:
        events = EventView(plan.job, LOCAL, created=True) if as_json else None
        followed = submit_and_follow(clients, plan, events, rehearsal)
        if followed is not None and rehearsal.fault.kind == "resume":
            followed = _resume(clients, plan.job, followed, rehearsal, as_json)
    if followed is None:
        return ExitCode.INTERRUPTED
    _tell(report(plan, rehearsal, __version__), as_json, page)
    return ExitCode.OK if rehearsal.verdict().passed else ExitCode.REHEARSAL_FAILED


def _resume(clients: Clients, old: str, cut_off: Followed, rehearsal: Rehearsal, as_json: bool) -> Followed | None:
    """Go on from the checkpoints of a job that was stopped; None if the person left the new one."""
    from smdp_launch.cli.render import resume as render
    from smdp_launch.cli.render.events import EventView, show_resumption
    from smdp_launch.cli.render.follow import Shape
    from smdp_launch.cli.shared.following import Answer, Following, follow_here, interrupts_held
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.resume import prepare, resume

    if cut_off.outcome.status != "Stopped" or not rehearsal.has_told("job_stopped"):
        return cut_off
    try:
        prepared = prepare(clients, old)
    except Refused as error:
        rehearsal.refused = str(error)
        return cut_off
    if as_json:
        show_resumption(prepared)
    else:
        render.show_resumption(prepared, LOCAL)
    with interrupts_held(clients):
        resume(clients, prepared, LOCAL)
        events = EventView(prepared.job, LOCAL, created=True) if as_json else None
        shape = Shape.of_description(prepared.old)
        return follow_here(Following(clients, prepared.job, shape, Answer.STOP, events=events, watch=rehearsal))


def _tell(told: Report, as_json: bool, page: Path | None) -> None:
    """The report to whoever waits for it, and to the plans of the same job."""
    from smdp_launch.cli.render.next import command_for, say_next
    from smdp_launch.cli.render.plots.rehearsal_page import page as rendered
    from smdp_launch.cli.render.rehearse import show_verdict
    from smdp_launch.rehearsals.saved import remember_rehearsal, write_whole

    try:
        show_verdict(told, page, as_json=as_json)
    finally:  # whoever read the terminal may have gone
        if told.verdict != "INCONCLUSIVE":
            remember_rehearsal(told)
        if page is not None:
            write_whole(page, rendered(told))
    if not as_json:
        again = command_for(f"rehearse {told.fault.kind}", told.plan.job_file)
        if told.verdict == "INCONCLUSIVE":
            say_next(f"name a moment that comes, such as {again} --after 5")
        else:
            say_next(command_for("plan", told.plan.job_file) if told.passed else f"mend it, then: {again}")
