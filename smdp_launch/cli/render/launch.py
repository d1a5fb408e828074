"""What a launch says before its job runs and after it has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from smdp_launch.catalog.local_cloud import OWN_NETWORK
from smdp_launch.cli.render.follow import metrics
from smdp_launch.cli.render.next import after_end, after_local_run, command_for_job, say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.logs.tracebacks import Worker
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.small_runs import needs_more_workers
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import rank_rows
from smdp_launch.request.names import S3Location
from smdp_launch.units import count, duration, short, titled

ObjectPath = Callable[[str, str], Path | None]


@dataclass
class Followed:
    """How the job ended, the last ``result`` event of its script, and the traceback of the worker that failed first."""

    outcome: Outcome
    results: dict[str, Any] = field(default_factory=dict)
    traceback: tuple[Worker, tuple[str, ...]] | None = None


def show_local_start(plan: Plan) -> None:
    if plan.local is None:
        raise ValueError("no plan of a local run")
    console = Console(highlight=False)
    run = plan.local
    hosts, workers = count(run.hosts, "host"), count(run.workers_per_host, "worker")
    console.print(Text(plan.job, "bold"), f"here: {hosts} x {workers}", sep="  ")
    data = [f"{channel}: {short(path)}" for channel, path in run.data.items()]
    links = {None: [], OWN_NETWORK: ["one of the job's own"]}.get(run.network, [f"links of {run.network}"])
    cuda = ["imitated on the CPU (docs/cuda-on-cpu.md)"] if run.cuda_on_cpu else []
    rows = [*rank_rows(plan), *titled("data", data), *titled("network", links), *titled("CUDA", cuda)]
    rows += titled("not here", run.not_honoured)
    print_rows(console, rows)


def show_local_end(plan: Plan, followed: Followed, object_path: ObjectPath) -> None:
    """Args:
    object_path: where an object of the local cloud lies on disk, given bucket and key.
    """
    ended, rows = followed.outcome, []
    if ended.model is not None:
        model = S3Location.parse(ended.model)
        path = object_path(model.bucket, model.key)
        if path is not None:
            rows.append(("model", short(path)))
    is_done = ended.status == "Completed" and ended.model is None
    then = after_local_run(plan.job_file, plan.placeholders) if is_done else after_end(plan.job, None, ended)
    _show_end(plan.job, followed, [*rows, *titled("workers", list(needs_more_workers(plan, ended))), ("next", then)])


def show_end(job: str, region: str | None, followed: Followed) -> None:
    """The end of a job of the service, or of one that was found by its name."""
    ended = followed.outcome
    rows = [("model", ended.model)] if ended.model is not None else []
    _show_end(job, followed, [*rows, ("next", after_end(job, region, ended))])


def show_detached(job: str) -> None:
    """Launched, and left to itself."""
    console = Console(highlight=False)
    console.print(Text(job, "bold"), "is launched and goes on by itself", sep="  ")
    say_next(command_for_job("follow", job))


def _show_end(job: str, followed: Followed, more: list[tuple[str, str]]) -> None:
    outcome = followed.outcome
    console = Console(highlight=False)
    seconds = f" after {duration(outcome.training_seconds)} of training" if outcome.training_seconds else ""
    good = outcome.status == "Completed"
    console.print(Text(f"{job} {outcome.summary}{seconds}", "bold green" if good else "bold red"))
    rows = titled("reason", outcome.reason.splitlines())
    rows += _traceback_rows(followed)
    told = metrics(followed.results)
    if told:
        rows.append(("result", ", ".join(told)))
    print_rows(console, [*rows, *more])


def _traceback_rows(followed: Followed) -> list[tuple[str, str]]:
    """Of the rank that failed first, unless the reason has it whole: the service cuts that."""
    if followed.traceback is None or followed.outcome.status != "Failed":
        return []
    (host, rank), lines = followed.traceback
    if "\n".join(lines) in followed.outcome.reason:
        return []
    return titled(f"rank {rank}", [f"on {host}:", *lines])
