"""What the commands share about sweeps: find one by its name, and follow it until it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_note

if TYPE_CHECKING:
    from pathlib import Path

    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.lines import Launch
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.jobs.sweeps import SweepState
    from smdp_launch.planning.plan import Plan


def sweep_of(name: str | None, region: str | None) -> Launch | None:
    """The sweep of this folder with the name, or the latest launch if it is one; None for a job."""
    from smdp_launch.jobs.records.history import find_launch, resolve_name

    launched = resolve_name(name) if region is None else find_launch(name)
    return launched if launched is not None and launched.sweep else None


@contextmanager
def connected(where: str | None, state: str | None) -> Iterator[Clients]:
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.service.clients import connection

    with connection(where, state)() as clients:
        clients.on_waiting = print_retry
        yield clients


def show_sweep(name: str, where: str | None, state: str | None, as_json: bool, report: Path | None = None) -> None:
    """Print the sweep with its trials, and record its end. Write its report, if ``report`` names a file."""
    from smdp_launch.cli.render.sweeps import print_sweep
    from smdp_launch.jobs.open_costs import record_sweep_end
    from smdp_launch.jobs.sweeps import describe_sweep

    with connected(where, state) as clients:
        sweep = describe_sweep(clients, name)
        record_sweep_end(clients, sweep)
        if report is not None:
            report_sweep(clients, sweep, where, report)
    if as_json:
        print_document(sweep.to_json())
    else:
        print_sweep(sweep)


def report_sweep(clients: Clients, sweep: SweepState, where: str | None, page: Path) -> None:
    """Read the logs of the trials, and write the report of the sweep.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    from smdp_launch.cli.render.job.report import write_sweep_report
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.jobs.trial_curves import read_curves

    with busy(f"reading the logs of {sweep.name}'s trials"):
        curves = read_curves(clients, sweep)
    write_sweep_report(sweep, curves, where or "AWS", page)


def submit_sweep(clients: Clients, plan: Plan, *, detach: bool) -> SweepState | None:
    """Create the sweep, with a progress bar for a large source archive, and follow it unless ``detach`` is True. None
    if the user detached from it, or it is not followed.

    An interrupt during the upload cancels the launch. From just before the creation, an interrupt is a question about
    the sweep, so that no sweep exists without the user's knowledge.

    Raises:
        KeyboardInterrupt: no sweep was created.
        Interrupted: the service did not answer, so the sweep may exist; or it was created and is not followed.
    """
    from smdp_launch.cli.render.job.upload import UploadView
    from smdp_launch.cli.shared.follow_session import sigterm_as_sigint
    from smdp_launch.jobs.submit import send_source
    from smdp_launch.jobs.sweeps import create_tuning_job

    with sigterm_as_sigint(), UploadView() as upload:
        send_source(clients, plan, upload.show)
    return _created(clients, plan.job, lambda: create_tuning_job(clients, plan), detach=detach)


def _created(clients: Clients, name: str, create: Callable[[], None], *, detach: bool) -> SweepState | None:
    from smdp_launch.cli.shared.follow_session import interrupts_deferred, require_no_interrupt

    with interrupts_deferred(clients):
        create()
        click.echo(f"{name}: the sweep is launched")
        if detach:
            require_no_interrupt(clients, name)
            return None
        return follow_sweep(clients, name)


def follow_sweep(clients: Clients, name: str) -> SweepState | None:
    """Print a line for each trial that ends, until the sweep ends. None if the user detached from it. An outage of the
    service or expired credentials do not end the function, unless they last for a day.

    Ctrl-C asks whether to stop the sweep; without a terminal it detaches.
    """
    from smdp_launch.cli.render.sweeps import state_text
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.errors import Interrupted
    from smdp_launch.jobs.sweeps import ENDED, describe_sweep, following, stop_sweep, value_text

    shown: set[str] = set()
    with interrupts_deferred(clients), following(clients, name):
        while True:
            try:
                sweep = describe_sweep(clients, name)
            except Interrupted as error:
                print_note(f"{error}; {name} continues: `smdp-launch trials {name}` shows it")
                return None
            for one in sweep.trials:
                if one.status in ENDED and one.job not in shown:
                    shown.add(one.job)
                    values = ", ".join(f"{key} {value_text(value)}" for key, value in one.values.items())
                    result = f"{sweep.metric} {one.objective:g}" if one.objective is not None else "no result"
                    click.echo(f"{one.job}: {one.status}, {result} ({values})")
            if sweep.has_ended:
                return sweep
            if clients.interrupted.wait(clients.poll):
                if not _stops(clients):
                    print_note(f"{name} continues ({state_text(sweep)}): `smdp-launch trials {name}` shows it")
                    return None
                stop_sweep(clients, name)
                print_note("stopping: the trials have 120 s to save their state")


def resumed_sweep(
    old: Launch, *, detach: bool, dry_run: bool, yes: bool, report: Path | None, as_json: bool
) -> ExitCode:
    """Launch a new sweep that starts from the trials of one that has ended, and follow it."""
    from smdp_launch.cli.render.next_step import command_for_job, print_next
    from smdp_launch.cli.render.sweeps import print_sweep, print_sweep_resumption
    from smdp_launch.cli.shared.confirmation import confirm
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.open_costs import record_sweep_end
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.resumed_sweeps import prepare_sweep, resume_sweep

    for option, value in {"--json": as_json, "--report": report}.items():
        if value:
            raise click.UsageError(f"{option} is for one job, and {old.job} is a sweep")
    with connected(old.where, old.state) as clients:
        prepared = prepare_sweep(clients, old.job)
        record_sweep_end(clients, prepared.old)
        print_sweep_resumption(prepared)
        if dry_run:
            print_next(command_for_job("resume", prepared.old.name))
            return ExitCode.OK
        if old.where != LOCAL:
            confirm(yes, ask=True)
        sweep = _created(clients, prepared.sweep, lambda: resume_sweep(clients, prepared, old.where), detach=detach)
        if detach:
            print_next(f"smdp-launch trials {prepared.sweep}")
            return ExitCode.OK
        if sweep is None:
            return ExitCode.INTERRUPTED
        record_sweep_end(clients, sweep)
    print_sweep(sweep)
    return sweep.exit_code


def _stops(clients: Clients) -> bool:
    from smdp_launch.cli.shared.keyboard import Keyboard

    clients.interrupted.clear()
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    sys.stdout.write("\n[s]top the sweep, or [d]etach from it: ")
    sys.stdout.flush()
    answer = Keyboard().line(clients.interrupted.is_set)
    clients.interrupted.clear()
    return (answer or "").strip().lower()[:1] == "s"
