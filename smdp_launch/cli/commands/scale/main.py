from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from smdp_launch.cli.commands.scale import values
from smdp_launch.cli.commands.scale.inputs import measured_run, prices_of, setting_of
from smdp_launch.cli.commands.scale.model import model_answers, model_program
from smdp_launch.cli.render.json_output import json_text, print_document
from smdp_launch.cli.shared import completers, options
from smdp_launch.cli.shared.checking import check


@click.command("scale")
@options.job_file
@options.settings
@click.option(
    "--hosts",
    metavar="N,N,...",
    callback=values.parsed("host_counts"),
    help="Numbers of hosts. Default: 1,2,4,8,16 and the number in the job file.",
)
@click.option(
    "--instance-type",
    "instance_types",
    metavar="TYPE",
    multiple=True,
    callback=values.instance_types,
    shell_complete=values.complete_types,
    help="Use this GPU instance type instead of the type in the job file; may be repeated.",
)
@click.option(
    "--step-time",
    "step_s",
    metavar="[TYPE=]SECONDS",
    multiple=True,
    callback=values.step_times,
    help="Seconds of a step on one GPU without any exchange; may be repeated for other types.",
)
@click.option(
    "--from",
    "run",
    metavar="NAME",
    shell_complete=completers.launched_jobs,
    help="Take the seconds of a step from this run.",
)
@click.option(
    "--trace",
    metavar="MODEL",
    callback=values.trace,
    shell_complete=values.complete_models,
    help="Use the gradients and the published step time of bert-large or mask-rcnn.",
)
@click.option(
    "--parameters",
    metavar="N",
    callback=values.parsed("parameters"),
    help="Number of parameters of the model, such as 335M.",
)
@click.option(
    "--gradient-bytes",
    metavar="BYTES",
    callback=values.parsed("gradient_bytes"),
    help="Bytes of gradients that each step exchanges, such as 670MB.",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Type of the gradients. Default: float32."
)
@click.option(
    "--bucket-mib", metavar="N", type=click.IntRange(1, 1024), help="Size of a gradient bucket in MiB. Default: 25."
)
@click.option(
    "--backward-share",
    metavar="SHARE",
    callback=values.parsed("share"),
    help="Share of the backward pass in a step. Default: 2/3.",
)
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(1, 10**9),
    help="Samples per step on each GPU. Default: the value in the job file.",
)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(1, 10**15),
    help="Samples per epoch, for the hours and the cost of an epoch.",
)
@click.option(
    "--prices", metavar="FILE", type=click.Path(path_type=Path), help="Table of prices, instead of `budget.prices`."
)
@click.option(
    "--option",
    "engine_options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=values.parsed("option"),
    help="Set an engine option, such as SMDP_PIECE_KIB=512; may be repeated.",
)
@click.option(
    "--cost",
    "costs",
    metavar="NAME=VALUE",
    multiple=True,
    callback=values.costs,
    help="Set a cost of the model, such as copy_byte=1e-10, or ring.link_rate=9e9 for one schedule; may be repeated.",
)
@click.option(
    "--costs",
    "costs_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read the costs from this file of calibrate.py.",
)
@click.option(
    "--worth",
    metavar="SHARE",
    callback=values.parsed("share"),
    help="Smallest efficiency at which added hosts are worth their cost. Default: 0.5.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(1, 86400),
    default=600,
    show_default=True,
    help="Time limit of the estimate in seconds.",
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a plot of the efficiency to this file."
)
@options.json_document
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
    **study_values: Any,
) -> None:
    """Estimate the step time, efficiency and cost of JOBFILE (default: job.yaml) on more hosts or other instance types.

    The command compares three ways to exchange gradients: the native engine, a schedule like that of AWS's library, and
    a ring like NCCL's. The command computes the times with a model: it measures nothing and launches no job. It prints
    every assumption with its source.

    The time of a step comes from --step-time, from the published time of --trace, or from the latest run of the job.
    """
    from smdp_launch.cli.render.scale import print_report
    from smdp_launch.errors import JobFileRefused
    from smdp_launch.scaling.inputs import Flags, inputs
    from smdp_launch.scaling.program import default_costs
    from smdp_launch.scaling.report import refused_json
    from smdp_launch.scaling.study import Study
    from smdp_launch.scaling.verdict import WORTH

    given = Flags(options=dict(study_values.pop("engine_options")), **study_values)
    checked = check(job_file, settings=settings)
    try:
        spec, _ = checked.require()
    except JobFileRefused as refused:
        if as_json:
            document = refused_json(str(job_file), refused.diagnostics)
            print_document(document)
        raise
    program = model_program()
    setting = setting_of(default_costs(program), costs, costs_file)
    study_inputs = inputs(spec, given, measured_run(job_file, given, run))
    table, hint = prices_of(checked, prices, [one.name for one in study_inputs.types], given)
    file = str(costs_file) if costs_file is not None else None
    study = Study(str(job_file), study_inputs, setting, worth or WORTH, table, file, hint)
    report = replace(study.report(model_answers(program, study, timeout)), diagnostics=checked.diagnostics)
    if svg is not None:
        from smdp_launch.cli.render.plots.scale_plot import svg_document
        from smdp_launch.draft.user_files import write_file

        write_file(svg, svg_document(report))
    if as_json:
        click.echo(json_text(report.to_json(), allow_nan=False))
    else:
        print_report(report, spec, svg)
