"""The plan for a person, on standard output, in 80 columns."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from smdp_launch.cli.render.next import command_for, say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import summary


def show_plan(plan: Plan) -> None:
    console = Console(highlight=False)
    console.print(Text(plan.job, "bold"), Text(f"from {plan.job_file}"), sep="  ")
    print_rows(console, summary(plan))


def show_origins(plan: Plan) -> None:
    """Each value with the place that it came from."""
    console = Console(highlight=False)
    console.print()
    width = max((len(one.key) for one in plan.origins), default=0)
    for one in plan.origins:
        key, value = Text(f"{one.key:<{width}}  ", "cyan"), Text(str(one.value))
        where = Text(one.layer.value if one.place is None else f"{one.layer.value}, {one.place}", "dim")
        line = Text.assemble(key, value, "  ", where)
        if console.is_terminal and line.cell_len > console.width:
            line = Text.assemble(key, where, "\n  ", value)
        console.print(line, soft_wrap=True)


#: Notes on local data that a local run refuses.
_NO_LOCAL_DATA = {"SMDP404", "SMDP405"}


def show_next(plan: Plan, saved: Path | None) -> None:
    if saved is not None:
        say_next(command_for("launch", str(saved)))
    elif any(one.code in _NO_LOCAL_DATA for one in plan.diagnostics):
        say_next(command_for("launch", plan.job_file))  # a local run would be refused
    else:
        unnamed = [one for one in sorted(plan.spec.channels) if one not in plan.spec.local.channels]
        data = "".join(f" --data {one}=FOLDER" for one in unnamed)
        say_next(f"{command_for('launch', plan.job_file)} --local{data}, then without --local on AWS")
