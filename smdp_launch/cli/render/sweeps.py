"""A sweep for a person: its state, and a table of its trials."""

from __future__ import annotations

import click

from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.resumed_sweeps import SweepResumption
from smdp_launch.jobs.sweeps import ENDED, SweepState, value_text
from smdp_launch.units import count, duration

_STYLES = {"Completed": "green", "Failed": "red"}
_MOST_REASONS = 5  # failed trials whose reason is shown; ``--json`` has all


def print_sweep(sweep: SweepState) -> None:
    """The state, the table, and the best trial."""
    click.echo(f"{sweep.name}: {state_text(sweep)}")
    if sweep.reason is not None:
        click.echo(f"  {sweep.reason}")
    if sweep.trials:
        print_trials(sweep)
        _print_reasons(sweep)
    if sweep.best is not None and sweep.has_ended:
        print_next(f"smdp-launch download {sweep.best}")
    elif not sweep.has_ended:
        print_next(f"smdp-launch trials {sweep.name}")


def print_sweep_resumption(prepared: SweepResumption) -> None:
    """The new sweep, before it is launched."""
    old = prepared.old
    click.echo(f"{prepared.sweep}  from {old.name} ({state_text(old)})")
    most = "the combinations without a result" if prepared.trials is None else count(prepared.trials, "trial")
    click.echo(f"  runs         {most}")
    click.echo(f"  starts from  {', '.join(prepared.parents)}")


def state_text(sweep: SweepState) -> str:
    """Such as ``InProgress, 3 of 20 trials ended, best validation:loss 0.25``."""
    return f"{sweep.status}, {ended_text(sweep)}"


def ended_text(sweep: SweepState) -> str:
    """The state without its status."""
    ended = sum(one.status in ENDED for one in sweep.trials)
    of = f"{ended} of {count(sweep.most, 'trial')}" if sweep.most is not None else count(ended, "trial")
    text = f"{of} ended"
    for status in ("Failed", "Stopped"):
        number = sum(one.status == status for one in sweep.trials)
        text += f", {number} {status.lower()}" if number else ""
    best = next((one for one in sweep.trials if one.job == sweep.best), None)
    if best is not None and best.objective is not None:
        text += f", best {sweep.metric} {best.objective:g}"
    return text


def print_trials(sweep: SweepState) -> None:
    trials, names = sweep.trials, sorted({name for one in sweep.trials for name in one.values})
    columns = [
        Column("trial", [one.job for one in trials]),
        *(Column(name, [value_text(one.values.get(name, "")) for one in trials]) for name in names),
        Column(sweep.metric, [f"{one.objective:g}" if one.objective is not None else "" for one in trials]),
        Column("status", [one.status for one in trials], [_STYLES.get(one.status, "") for one in trials]),
        Column("time", [duration(round(one.seconds)) if one.seconds is not None else "" for one in trials], drop=1),
    ]
    print_table(Console(highlight=False), columns)


def _print_reasons(sweep: SweepState) -> None:
    failed = [one for one in sweep.trials if one.reason is not None and one.status == "Failed"]
    for one in failed[:_MOST_REASONS]:
        click.echo(f"{one.job} failed: {' '.join((one.reason or '').split())}")
    if len(failed) > _MOST_REASONS:
        click.echo(f"{count(len(failed) - _MOST_REASONS, 'more trial')} failed: --json has the reasons")
