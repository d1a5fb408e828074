"""The result of `probe`: a table of the links between hosts."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from smdp_launch.cli.render.job.events import EventView
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.render.job.status import outcome_json
from smdp_launch.cli.render.next_step import command_for, command_for_job, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.follow import FollowEvent
from smdp_launch.planning.plan import Plan
from smdp_launch.run_metrics.network import NetworkLink, NetworkReport
from smdp_launch.units import titled

#: Version of ``probe --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


class SilentView(EventView):
    """Prints nothing: the command prints one document at the end."""

    def note(self, text: str) -> None:
        pass

    def detached(self, job: str, stopping: bool) -> None:
        pass

    def show(self, event: FollowEvent) -> None:
        pass

    def end(self, *_: Any) -> None:
        pass


def print_probe(plan: Plan, result: FollowResult) -> None:
    console = Console(highlight=False)
    report = result.metrics.network
    if report is not None:
        _print_links(console, report)
    ended = result.outcome
    good = ended.status == "Completed"
    console.print(Text(f"{plan.job} {ended.summary}", "bold green" if good else "bold red"))
    rows = []
    if report is not None:
        rows += [("network", report.summary())]
        rows += titled("problems", [f"{one.text}. {one.fix}" for one in report.problems])
    if not good and (report is None or not report.problems):
        rows += titled("reason", ended.reason.splitlines())
    print_rows(console, rows)
    if good:
        print_next(command_for("launch", plan.job_file))
    else:
        print_next(command_for_job("logs", plan.job, plan.spec.region if plan.local is None else None))


def _print_links(console: Console, report: NetworkReport) -> None:
    links = sorted(report.links, key=lambda one: (one.rail, one.source, one.target))
    columns = [
        Column("from", [one.source for one in links]),
        Column("to", [one.target for one in links]),
        Column("interface", [one.rail for one in links]),
        Column("Gbit/s", [_number(one.gbit) for one in links]),
        Column("share", [f"{one.share:.0%}" if one.share is not None else "-" for one in links]),
        Column("latency ms", [_number(one.latency_ms) for one in links]),
        Column("verdict", [one.verdict for one in links], [_style(one) for one in links]),
    ]
    print_table(console, columns)
    if report.measured > len(links):
        console.print(f"the slowest {len(links)} of {report.measured} links are shown")


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else "-"


def _style(link: NetworkLink) -> str:
    return "green" if link.verdict == "ok" else "bold red"


def probe_json(plan: Plan, result: FollowResult) -> dict[str, Any]:
    report = result.metrics.network
    return {
        "probe": _VERSION,
        "job": plan.job,
        "where": "local" if plan.local is not None else plan.spec.region,
        "instance_type": plan.spec.compute.instance_type,
        "outcome": outcome_json(result.outcome),
        "network": report.to_json() if report is not None else None,
    }
