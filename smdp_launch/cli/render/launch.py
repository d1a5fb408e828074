"""What a launch says before its job runs and after it has ended."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smdp_launch.cli.following import Followed
from smdp_launch.cli.render.follow import metrics
from smdp_launch.cli.render.plan import count, duration, rank_rows
from smdp_launch.plan.plan import Plan
from smdp_launch.request.names import S3Location

ObjectPath = Callable[[str, str], Path | None]


def show_local_start(plan: Plan) -> None:
    if plan.local is None:
        raise ValueError("no plan of a local run")
    console = Console(highlight=False)
    run = plan.local
    hosts, workers = count(run.hosts, "host"), count(run.workers_per_host, "worker")
    console.print(Text(plan.job, "bold"), f"here: {hosts} x {workers}", sep="  ")
    table = _grid()
    for name, value in rank_rows(plan):
        table.add_row(name, value)
    for title, path in run.data.items():
        table.add_row("data", f"{title}: {_short(path)}")
    for index, line in enumerate(run.not_honoured):
        table.add_row("not here" if index == 0 else "", line)
    console.print(table)


def show_local_end(plan: Plan, followed: Followed, object_path: ObjectPath) -> None:
    """Args:
    object_path: where an object of the local cloud lies on disk, given bucket and key.
    """
    rows = []
    if followed.outcome.model is not None:
        model = S3Location.parse(followed.outcome.model)
        path = object_path(model.bucket, model.key)
        if path is not None:
            rows.append(("model", _short(path)))
    job_file = "" if plan.job_file == "job.yaml" else f" {shlex.quote(plan.job_file)}"
    if followed.outcome.status == "Completed":
        rows.append(
            ("next", f"put your role, region and image into {plan.job_file}, then: smdp-launch launch{job_file}")
        )
    else:
        rows.append(("next", f"mend it, then: smdp-launch launch{job_file} --local"))
    _show_end(plan, followed, rows)


def show_end(plan: Plan, followed: Followed) -> None:
    rows = [("model", followed.outcome.model)] if followed.outcome.model is not None else []
    _show_end(plan, followed, rows)


def _show_end(plan: Plan, followed: Followed, more: list[tuple[str, str]]) -> None:
    outcome = followed.outcome
    console = Console(highlight=False)
    seconds = f" after {duration(outcome.training_seconds)} of training" if outcome.training_seconds else ""
    good = outcome.status == "Completed"
    console.print(Text(f"{plan.job} {outcome.summary}{seconds}", "bold green" if good else "bold red"))
    table = _grid()
    if outcome.reason:
        table.add_row("reason", Text(outcome.reason))
    told = metrics(followed.results)
    if told:
        table.add_row("result", ", ".join(told))
    for name, value in more:
        table.add_row(name, Text(value))
    if table.row_count:
        console.print(table)


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    return table


def _short(path: Path) -> str:
    """Relative to the current folder where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
