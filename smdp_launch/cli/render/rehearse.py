"""Output of a rehearsal before its job runs and after the job has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from smdp_launch.catalog.faults import Fault
from smdp_launch.catalog.hosting.faults import EndpointFault
from smdp_launch.cli.render.plots.timeline import drawn, legend
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.plain_text import without_controls
from smdp_launch.planning.plan import Plan
from smdp_launch.rehearsals.endpoint import report as endpoint
from smdp_launch.rehearsals.rehearsal import Result
from smdp_launch.rehearsals.report import Report, Timeline
from smdp_launch.rehearsals.texts import describe_planned_fault, platform
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.units import count

Row = tuple[str, str]

_NAMES = 13  # columns of the names in all sections
_NARROWEST, _WIDEST = 20, 120  # columns of a timeline


_STYLES: dict[Result, str] = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def print_fault(plan: Plan, fault: Fault) -> None:
    console = Console(highlight=False)
    size = f"{count(plan.hosts, 'host')} x {count(plan.workers_per_host, 'worker')}"
    console.print(Text(plan.job, "bold"), f"rehearsal of {fault.kind}, local run: {size}", sep="  ")
    print_rows(console, [("fault", describe_planned_fault(fault)), ("platform", platform(fault.kind))])


def print_endpoint_fault(plan: ServingPlan, fault: EndpointFault) -> None:
    console = Console(highlight=False)
    console.print(Text(plan.name, "bold"), f"rehearsal of {fault.kind}, {plan.serve.kind} endpoint, locally", sep="  ")
    print_rows(console, [("fault", endpoint.describe_planned(fault)), ("platform", endpoint.platform(fault.kind))])


def print_verdict(report: Report, page: Path | None = None, *, as_json: bool) -> None:
    """Print the report. ``page``: the file of its HTML page."""
    if as_json:
        click.echo(json.dumps(report.to_json(), allow_nan=False))
        return
    console = Console(highlight=False)
    head = Text(report.verdict, _STYLES[report.verdict])
    _print_wrapped(console, Text.assemble("\n", head, f"  {without_controls(report.reason)}"))
    _print_section(console, "Rehearsal", report.rehearsed)
    _print_section(console, "On SageMaker", [("", report.platform)], 0)
    _print_section(console, "Evidence", report.evidence)
    _print_timeline(console, report.timeline)
    _print_section(console, "Simulated locally", report.applied)
    _print_section(console, "Not simulated locally", [("-", one) for one in report.not_applied], 4)
    _print_section(console, "Differences on SageMaker", report.adds)
    if page is not None:
        _print_section(console, "HTML report", [("", str(page))], 0)


def _print_section(console: Console, title: str, rows: Sequence[Row], names: int = _NAMES) -> None:
    if rows:
        console.print(Text(f"\n{title}", "bold"))
        indent = "  " if names else ""
        print_rows(console, [(f"{indent}{name}".ljust(names), value) for name, value in rows])


def _print_timeline(console: Console, timeline: Timeline) -> None:
    """Print bars as wide as the terminal."""
    columns = max(_NARROWEST, min(console.width, _WIDEST) - _NAMES - 2)
    rows = list(drawn(timeline, columns))
    scale = f"one column is {timeline.length_ms / 1000 / columns:.2g} s"
    _print_section(console, f"Timeline ({scale})", rows)
    print_rows(console, [(f"  {name}".ljust(_NAMES), value) for name, value in legend(timeline)])


def _print_wrapped(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)
