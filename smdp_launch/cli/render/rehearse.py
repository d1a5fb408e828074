"""What a rehearsal says before its job runs and after it has ended."""

from __future__ import annotations

import json

import click
from rich.text import Text

from smdp_launch.catalog.faults import Fault
from smdp_launch.cli.render.console import Console, without_controls
from smdp_launch.cli.render.rows import print_rows
from smdp_launch.jobs.rehearsal import Rehearsal, announced, platform
from smdp_launch.planning.plan import Plan
from smdp_launch.units import count, titled


def show_fault(plan: Plan, fault: Fault) -> None:
    console = Console(highlight=False)
    here = f"{count(plan.hosts, 'host')} x {count(plan.workers_per_host, 'worker')}"
    console.print(Text(plan.job, "bold"), f"rehearses {fault.kind} here: {here}", sep="  ")
    print_rows(console, [("fault", announced(fault)), ("platform", platform(fault.kind))])


def show_verdict(plan: Plan, rehearsal: Rehearsal, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**rehearsal.to_json(), "job": plan.job}, allow_nan=False))
        return
    console = Console(highlight=False)
    verdict = rehearsal.verdict()
    head = Text("PASS" if verdict.passed else "FAIL", "bold green" if verdict.passed else "bold red")
    console.print(Text.assemble(head, f"  {verdict.reason}"), soft_wrap=True)
    rows = [(name, without_controls(value)) for name, value in verdict.evidence]
    left_out = plan.local.not_honoured if plan.local is not None else ()
    print_rows(console, [*rows, *titled("not here", left_out)])
