"""The inputs of ``scale``: costs of the model, a measured run, and prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.scaling.inputs import Flags
    from smdp_launch.scaling.measured import Measured
    from smdp_launch.scaling.question import Setting
    from smdp_launch.scaling.study import Price


def setting_of(
    defaults: Mapping[str, float], costs: Sequence[tuple[str | None, str, float]], file: Path | None
) -> Setting:
    from smdp_launch.scaling.question import Setting

    from_file = _read_costs(file, defaults) if file is not None else {}
    everywhere: dict[str, float] = {}
    of_schedule: dict[str, dict[str, float]] = {}
    for schedule, name, value in costs:
        _require_cost(name, value, defaults, "--cost")
        (everywhere if schedule is None else of_schedule.setdefault(schedule, {}))[name] = value
    return Setting(defaults, from_file, everywhere, of_schedule)


def _read_costs(file: Path, defaults: Mapping[str, float]) -> dict[str, float]:
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.scaling.parsing import costs_file

    try:
        costs = costs_file(file.read_text("utf-8"))
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(f"--costs {file}: {error}") from error
    for name, value in costs.items():
        _require_cost(name, value, defaults, f"--costs {file}")
    return costs


def _require_cost(name: str, value: float, known: Mapping[str, float], where: str) -> None:
    from smdp_launch.diagnostics import closest
    from smdp_launch.scaling.question import cost_problem

    if name not in known:
        match = closest(name, list(known))
        hint = f"did you mean {match}?" if match else f"one of {', '.join(known)}"
        raise click.UsageError(f"{where}: the model has no cost {name!r}: {hint}")
    problem = cost_problem(name, value)
    if problem is not None:
        raise click.UsageError(f"{where}: {problem}")


def measured_run(job_file: Path, given: Flags, name: str | None) -> Measured | None:
    """The steps of the named run. Without a name: of the job's latest run that reported steps, if the study needs one.

    Raises:
        Refused: no run has that name, or the run reported too few steps.
    """
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.errors import Interrupted, Refused, SmdpError
    from smdp_launch.jobs.records.history import resolve_name, runs_of
    from smdp_launch.jobs.step_events import run_events
    from smdp_launch.scaling.measured import measured

    if name is not None:
        launch = resolve_name(name)
        if launch is None:
            raise Refused(f"no run {name} was launched from this folder: `smdp-launch list` lists the runs")
        run = measured(run_events(launch, print_retry))
        if run is None:
            raise Refused(f"{launch.job} reported too few steps: the script reports them with progress.step")
        return run
    if not given.needs_run:
        return None
    for launch in runs_of(job_file):
        try:
            run = measured(run_events(launch, print_retry))
        except Interrupted:
            raise
        except SmdpError as error:
            click.echo(f"{launch.job} is skipped: {error}", err=True)
            continue
        if run is not None:
            return run
    return None


def prices_of(
    checked: CheckedJob, file: Path | None, types: Sequence[str], given: Flags
) -> tuple[dict[str, Price], str | None]:
    """USD by instance type, and a hint if the costs need a further option.

    Raises:
        EnvironmentProblem: the price table cannot be used.
    """
    from smdp_launch.catalog.prices import command_for_prices, read_prices
    from smdp_launch.scaling.study import Price

    spec, _ = checked.require()
    table = read_prices(file) if file is not None else checked.facts.prices if checked.facts is not None else None
    if table is None:
        return (
            {},
            "no costs: name a table of prices with --prices FILE or "
            f"`budget: {{prices: FILE}}`, or run: {command_for_prices(spec.region)}",
        )
    hourly = {name: table.hourly(spec.region, name) for name in types}
    prices = {
        name: Price(usd, f"{table.source}, {table.date}, {spec.region}")
        for name, usd in hourly.items()
        if usd is not None
    }
    missing = [name for name in types if name not in prices]
    if missing:
        named = file or spec.budget.prices or table.source
        return prices, f"no cost of {', '.join(missing)}: {named} has no price in {spec.region}"
    if given.samples is None:
        return prices, "no cost of an epoch: add --samples (of an epoch), and --batch if the job file has none"
    return prices, None
