"""What a launch says before its job runs and after it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.text import Text

from smdp_launch.cli.following import Followed
from smdp_launch.cli.render.console import Console
from smdp_launch.cli.render.follow import metrics
from smdp_launch.cli.render.next import after_local_run, command_for
from smdp_launch.cli.render.rows import print_rows
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import rank_rows
from smdp_launch.request.names import S3Location
from smdp_launch.units import count, duration, short, titled

ObjectPath = Callable[[str, str], Path | None]


def show_local_start(plan: Plan) -> None:
    if plan.local is None:
        raise ValueError("no plan of a local run")
    console = Console(highlight=False)
    run = plan.local
    hosts, workers = count(run.hosts, "host"), count(run.workers_per_host, "worker")
    console.print(Text(plan.job, "bold"), f"here: {hosts} x {workers}", sep="  ")
    data = [f"{channel}: {short(path)}" for channel, path in run.data.items()]
    print_rows(console, [*rank_rows(plan), *titled("data", data), *titled("not here", run.not_honoured)])


def show_local_end(plan: Plan, followed: Followed, object_path: ObjectPath) -> None:
    """Args:
    object_path: where an object of the local cloud lies on disk, given bucket and key.
    """
    rows = []
    if followed.outcome.model is not None:
        model = S3Location.parse(followed.outcome.model)
        path = object_path(model.bucket, model.key)
        if path is not None:
            rows.append(("model", short(path)))
    if followed.outcome.model is not None:
        rows.append(("next", "smdp-launch download"))
    elif followed.outcome.status == "Completed":
        rows.append(("next", after_local_run(plan.job_file, bool(plan.placeholders))))
    else:
        rows.append(("next", f"{_mend(followed)}{command_for('launch', plan.job_file)} --local"))
    _show_end(plan, followed, rows)


def show_end(plan: Plan, followed: Followed) -> None:
    model = followed.outcome.model
    if model is not None:
        rows = [("model", model), ("next", "smdp-launch download")]
    else:
        rows = [("next", f"{_mend(followed)}{command_for('launch', plan.job_file)}")]
    _show_end(plan, followed, rows)


def _mend(followed: Followed) -> str:
    return "mend it, then: " if followed.outcome.status == "Failed" else ""


def _show_end(plan: Plan, followed: Followed, more: list[tuple[str, str]]) -> None:
    outcome = followed.outcome
    console = Console(highlight=False)
    seconds = f" after {duration(outcome.training_seconds)} of training" if outcome.training_seconds else ""
    good = outcome.status == "Completed"
    console.print(Text(f"{plan.job} {outcome.summary}{seconds}", "bold green" if good else "bold red"))
    rows = titled("reason", outcome.reason.splitlines())
    told = metrics(followed.results)
    if told:
        rows.append(("result", ", ".join(told)))
    print_rows(console, [*rows, *more])
