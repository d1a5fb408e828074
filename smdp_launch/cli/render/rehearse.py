"""What a rehearsal says before its job runs and after it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from smdp_launch.catalog.faults import Fault
from smdp_launch.cli.render.plots.timeline import drawn, legend
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.plain_text import without_controls
from smdp_launch.planning.plan import Plan
from smdp_launch.rehearsals.rehearsal import Result, announced, platform
from smdp_launch.rehearsals.report import Report, Timeline
from smdp_launch.units import count

Row = tuple[str, str]

_NAMES = 13  # columns of the names, one width on the whole page
_NARROWEST, _WIDEST = 20, 120  # columns of a timeline


_STYLES: dict[Result, str] = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def show_fault(plan: Plan, fault: Fault) -> None:
    console = Console(highlight=False)
    here = f"{count(plan.hosts, 'host')} x {count(plan.workers_per_host, 'worker')}"
    console.print(Text(plan.job, "bold"), f"rehearses {fault.kind} here: {here}", sep="  ")
    print_rows(console, [("fault", announced(fault)), ("platform", platform(fault.kind))])


def show_verdict(told: Report, page: Path | None = None, *, as_json: bool) -> None:
    """The report; ``page`` is where it will stand for a browser."""
    if as_json:
        click.echo(json.dumps(told.to_json(), allow_nan=False))
        return
    console = Console(highlight=False)
    head = Text(told.verdict, _STYLES[told.verdict])
    _show_lines(console, Text.assemble("\n", head, f"  {without_controls(told.reason)}"))
    _show_section(console, "What was rehearsed", told.rehearsed)
    _show_section(console, "On the platform", [("", told.platform)], 0)
    _show_section(console, "What was seen", told.evidence)
    _show_timeline(console, told.timeline)
    _show_section(console, "Honoured here", told.honoured)
    _show_section(console, "Not honoured here", [("-", one) for one in told.not_honoured], 4)
    _show_section(console, "What the real run adds", told.adds)
    if page is not None:
        _show_section(console, "The same for a browser", [("", str(page))], 0)


def _show_section(console: Console, title: str, rows: Sequence[Row], names: int = _NAMES) -> None:
    if rows:
        console.print(Text(f"\n{title}", "bold"))
        indent = "  " if names else ""
        print_rows(console, [(f"{indent}{name}".ljust(names), value) for name, value in rows])


def _show_timeline(console: Console, timeline: Timeline) -> None:
    """Bars are drawn to the width that there is, and are not wrapped."""
    columns = max(_NARROWEST, min(console.width, _WIDEST) - _NAMES - 2)
    rows = list(drawn(timeline, columns))
    wide = f"a column is {timeline.length_ms / 1000 / columns:.2g} s"
    _show_section(console, f"When ({wide})", rows)
    print_rows(console, [(f"  {name}".ljust(_NAMES), value) for name, value in legend(timeline)])


def _show_lines(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)
