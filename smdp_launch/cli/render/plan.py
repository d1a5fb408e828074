"""The plan for a person, on standard output, in 80 columns."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from smdp_launch.cli.render.next_step import command_for, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import summary
from smdp_launch.systems import linux_refusal


def print_plan(plan: Plan) -> None:
    console = Console(highlight=False)
    console.print(Text(plan.job, "bold"), Text(f"from {plan.job_file}"), sep="  ")
    print_rows(console, summary(plan))


def print_origins(plan: Plan) -> None:
    """Print each value with its source."""
    console = Console(highlight=False)
    console.print()
    width = max((len(one.key) for one in plan.origins), default=0)
    for one in plan.origins:
        key, value = Text(f"{one.key:<{width}}  ", "cyan"), Text(str(one.value))
        where = Text(one.source.value if one.place is None else f"{one.source.value}, {one.place}", "dim")
        line = Text.assemble(key, value, "  ", where)
        if console.is_terminal and line.cell_len > console.width:
            line = Text.assemble(key, where, "\n  ", value)
        console.print(line, soft_wrap=True)


#: Notes about local data that prevents a local run.
_NO_LOCAL_DATA = {"SMDP404", "SMDP405"}


def print_plan_next(plan: Plan, saved_to: Path | None) -> None:
    if saved_to is not None:
        print_next(command_for("launch", str(saved_to)))
    elif any(one.code in _NO_LOCAL_DATA for one in plan.diagnostics):
        print_next(command_for("launch", plan.job_file))  # a local run is not possible
    elif linux_refusal("a local run") is not None:
        print_next(f"{command_for('preflight', plan.job_file)}, then {command_for('launch', plan.job_file)}")
    else:
        unnamed = [one for one in sorted(plan.spec.channels) if one not in plan.spec.local.channels]
        data = "".join(f" --data {one}=FOLDER" for one in unnamed)
        print_next(f"{command_for('launch', plan.job_file)} --local{data}, then without --local on AWS")
