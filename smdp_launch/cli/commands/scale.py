from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from smdp_launch.cli.shared import completing, options

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.scaling.inputs import Given
    from smdp_launch.scaling.measured import Measured
    from smdp_launch.scaling.program import Answer
    from smdp_launch.scaling.question import Setting
    from smdp_launch.scaling.study import Price, Study

Callback = Callable[[click.Context, click.Parameter, Any], Any]

#: Seconds.
_TIMEOUT = 600


def _parsed(parser: str) -> Callback:
    """By a function of ``scaling.parsing``, each value of an option that may be repeated."""

    def parse(_: click.Context, __: click.Parameter, value: Any) -> Any:
        from smdp_launch.scaling import parsing

        read = getattr(parsing, parser)
        try:
            if isinstance(value, tuple):
                return tuple(read(one) for one in value)
            return read(value) if value is not None else None
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return parse


def _instance_types(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        return ()
    from smdp_launch.scaling.inputs import gpu_instance

    try:
        return tuple(dict.fromkeys(gpu_instance(value).name for value in values))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _step_times(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str | None, float]:
    """``SECONDS``, or ``TYPE=SECONDS`` of each type."""
    from smdp_launch.scaling.inputs import gpu_instance
    from smdp_launch.scaling.parsing import seconds

    found: dict[str | None, float] = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        try:
            kind = gpu_instance(name).name if equals else None
            if kind in found:
                raise ValueError(f"the step of {kind or 'every type'} is given twice")
            found[kind] = seconds(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return found


def _trace(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from smdp_launch.scaling.inputs import MODELS

    if value not in MODELS:
        raise click.BadParameter(f"{value!r} is no model that is known: one of {', '.join(MODELS)}")
    return value


def _costs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[tuple[str | None, str, float]]:
    from smdp_launch.scaling.parsing import cost
    from smdp_launch.scaling.question import SCHEDULES

    try:
        return [cost(value, SCHEDULES) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _types(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.catalog.instances import instances

    return completing.starting([one.name for one in instances()], incomplete)


def _models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.scaling.inputs import MODELS

    return completing.starting(MODELS, incomplete)


@click.command("scale", short_help="How a job scales with hosts, and where more stop to pay.")
@options.job_file
@options.settings
@click.option(
    "--hosts",
    metavar="N,N,...",
    callback=_parsed("host_counts"),
    help="Host counts. Default: 1,2,4,8,16 and the job's own.",
)
@click.option(
    "--instance-type",
    "instance_types",
    metavar="TYPE",
    multiple=True,
    callback=_instance_types,
    shell_complete=_types,
    help="A GPU instance type in place of the job's; may be repeated.",
)
@click.option(
    "--step-time",
    "step_s",
    metavar="[TYPE=]SECONDS",
    multiple=True,
    callback=_step_times,
    help="Seconds of a step on one GPU without exchange; may be repeated for other types.",
)
@click.option(
    "--from",
    "run",
    metavar="NAME",
    shell_complete=completing.launched_jobs,
    help="The run of this folder that gives the seconds of a step.",
)
@click.option(
    "--trace",
    metavar="MODEL",
    callback=_trace,
    shell_complete=_models,
    help="Gradients and published step of bert-large or mask-rcnn.",
)
@click.option(
    "--parameters", metavar="N", callback=_parsed("parameters"), help="Number of parameters of the model, such as 335M."
)
@click.option(
    "--gradient-bytes",
    metavar="BYTES",
    callback=_parsed("gradient_bytes"),
    help="Bytes of gradients that a step exchanges, such as 670MB.",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Type of the gradients. Default: float32."
)
@click.option(
    "--bucket-mib", type=click.IntRange(1, 1024), help="MiB that a bucket of gradients is filled to. Default: 25."
)
@click.option(
    "--backward-share",
    metavar="SHARE",
    callback=_parsed("share"),
    help="The share of the backward pass in a step. Default: 2/3.",
)
@click.option("--batch", type=click.IntRange(1, 10**9), help="Samples of one step on each GPU. Default: the job's.")
@click.option("--samples", type=click.IntRange(1, 10**15), help="Samples of an epoch, for its hours and cost.")
@click.option("--prices", type=click.Path(path_type=Path), help="Table of prices, in place of `budget.prices`.")
@click.option(
    "--option",
    "engine_options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parsed("option"),
    help="An option of the engine, such as SMDP_PIECE_KIB=512; may be repeated.",
)
@click.option(
    "--cost",
    "costs",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_costs,
    help="A cost of the model, such as copy_byte=1e-10, or ring.link_rate=9e9 of one schedule; may be repeated.",
)
@click.option(
    "--costs", "costs_file", type=click.Path(path_type=Path), help="Costs that calibrate.py printed or wrote."
)
@click.option(
    "--worth",
    metavar="SHARE",
    callback=_parsed("share"),
    help="The share of their work that added hosts must do to pay. Default: 0.5.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=_TIMEOUT,
    show_default=True,
    help="Seconds that the model may take.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the efficiency into this file.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document (docs/json.md).")
def command(
    job_file: Path,
    settings: tuple[str, ...],
    run: str | None,
    prices: Path | None,
    costs: list[tuple[str | None, str, float]],
    costs_file: Path | None,
    worth: float | None,
    timeout: int,
    svg: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Model steps, efficiency and cost of JOBFILE (default ./job.yaml) on more hosts and other instance types.

    Three ways to exchange gradients stand side by side: this engine, one like AWS's library, and a ring like NCCL's.
    Nothing is measured and nothing is launched. Every assumption is printed with its origin.

    A step comes from --step-time, from the model that --trace names, or from the last run of the job.
    """
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.scale import show_report
    from smdp_launch.errors import JobFileRefused
    from smdp_launch.scaling.inputs import Given, inputs
    from smdp_launch.scaling.program import default_costs
    from smdp_launch.scaling.report import refused_json
    from smdp_launch.scaling.study import Study
    from smdp_launch.scaling.verdict import WORTH

    given = Given(options=dict(flags.pop("engine_options")), **flags)
    checked = check_job(job_file, settings=settings)
    try:
        spec, _ = checked.require()
    except JobFileRefused as refused:
        if as_json:
            told = refused_json(str(job_file), refused.diagnostics)
            click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        raise
    program = _program()
    setting = _setting(default_costs(program), costs, costs_file)
    found = inputs(spec, given, _measured(job_file, given, run))
    table, hint = _prices(checked, prices, [one.name for one in found.types], given)
    file = str(costs_file) if costs_file is not None else None
    study = Study(str(job_file), found, setting, worth or WORTH, table, file, hint)
    report = replace(study.report(_answers(program, study, timeout)), diagnostics=checked.diagnostics)
    if svg is not None:
        from smdp_launch.cli.render.plots.scale_plot import document

        _write(svg, document(report))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show_report(report, spec, svg)


def _program() -> Path:
    """Raises:
    EnvironmentProblem: it is not here; the message has the command that installs it.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.scaling.program import ProgramMissing, find_program

    try:
        return find_program()
    except ProgramMissing as error:
        raise EnvironmentProblem(_install(error)) from error


def _install(error: Exception) -> str:
    import shlex
    import sys

    from smdp_launch.image.context import source_root

    pip = f"{shlex.quote(sys.executable)} -m pip install"
    needs = "'scikit-build-core>=0.10,<2' 'cmake>=3.20,<4' 'ninja>=1.11'"
    native = shlex.quote(str(source_root() / "native"))
    return (
        f"{error}: the model of cost comes with the engine; install it with "
        f"{pip} {needs} && {pip} --force-reinstall --no-deps --no-build-isolation {native}"
    )


def _setting(
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
        found = costs_file(file.read_text("utf-8"))
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(f"--costs {file}: {error}") from error
    for name, value in found.items():
        _require_cost(name, value, defaults, f"--costs {file}")
    return found


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


def _measured(job_file: Path, given: Given, name: str | None) -> Measured | None:
    """From the run that is named, or from the last one of the job that reported steps, if one is needed.

    Raises:
        Refused: no run has that name, or it reported too few steps.
    """
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.errors import Interrupted, Refused, SmdpError
    from smdp_launch.jobs.records.history import meant
    from smdp_launch.jobs.step_events import run_events, runs_of
    from smdp_launch.scaling.measured import measured

    if name is not None:
        launch = meant(name)
        if launch is None:
            raise Refused(f"there is no run {name} of this folder: `smdp-launch list` shows them")
        found = measured(run_events(launch, show_waiting))
        if found is None:
            raise Refused(f"{launch.job} reported too few steps: its script reports them with progress.step")
        return found
    if not given.needs_run:
        return None
    for launch in runs_of(job_file):
        try:
            found = measured(run_events(launch, show_waiting))
        except Interrupted:
            raise
        except SmdpError as error:
            click.echo(f"{launch.job} is left out: {error}", err=True)
            continue
        if found is not None:
            return found
    return None


def _prices(
    checked: CheckedJob, file: Path | None, types: Sequence[str], given: Given
) -> tuple[dict[str, Price], str | None]:
    """USD by type; and how prices can be given, where some of what they need is not known.

    Raises:
        EnvironmentProblem: the table cannot be used.
    """
    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.scaling.study import Price

    spec, _ = checked.require()
    table = read_prices(file) if file is not None else checked.facts.prices if checked.facts is not None else None
    if table is None:
        return {}, "no cost: name a table of prices with --prices FILE or `budget: {prices: FILE}` (docs/catalog.md)"
    found = {name: table.hourly(spec.region, name) for name in types}
    known = {
        name: Price(usd, f"{table.source}, {table.date}, {spec.region}")
        for name, usd in found.items()
        if usd is not None
    }
    missing = [name for name in types if name not in known]
    if missing:
        return known, f"no cost of {', '.join(missing)}: {file or spec.budget.prices} has no price in {spec.region}"
    if given.samples is None:
        return known, "no cost of an epoch: give --samples, of an epoch, and --batch if the job file has none"
    return known, None


def _answers(program: Path, study: Study, timeout: float) -> dict[str, Answer]:
    from smdp_launch.cli.render.scale import ModelProgress
    from smdp_launch.cli.shared.following import terminated_like_interrupted
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.scaling.program import ProgramMissing, QuestionRefused, TookTooLong, ask_all

    try:
        with terminated_like_interrupted(), ModelProgress() as progress:
            return ask_all(program, study.questions(), progress.show, timeout=timeout)
    except QuestionRefused as error:
        raise click.UsageError(f"the model refuses this: {error}") from error
    except TookTooLong as error:
        raise EnvironmentProblem(f"{error}: leave such counts out of --hosts, or give more with --timeout") from error
    except ProgramMissing as error:
        raise EnvironmentProblem(_install(error)) from error


def _write(path: Path, text: str) -> None:
    from smdp_launch.disk import why
    from smdp_launch.errors import EnvironmentProblem

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error
