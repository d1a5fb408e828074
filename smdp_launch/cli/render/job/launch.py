"""Output of a launch before its job runs and after the job has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from smdp_launch.catalog.local_cloud import OWN_NETWORK
from smdp_launch.cli.render.job.follow import metrics
from smdp_launch.cli.render.job.status import number_rows
from smdp_launch.cli.render.next_step import command_for_job, next_after_end, next_after_local_run, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.logs.tracebacks import Worker
from smdp_launch.jobs.records.local_clouds import known_cloud_folder
from smdp_launch.jobs.records.outcome import WROTE_NOTHING, Outcome
from smdp_launch.jobs.too_few_workers import needs_more_workers
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import rank_rows
from smdp_launch.request.names import S3Location
from smdp_launch.request.ranks import hosts as host_names
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.units import count, duration, short, titled

ObjectPath = Callable[[str, str], Path | None]


@dataclass
class FollowResult:
    """How the job ended, the last ``result`` event of its script, the traceback of the worker that failed first, and
    the numbers of the run. ``has_all_lines`` is False if the timeout came before the end of the log."""

    outcome: Outcome
    results: dict[str, Any] = field(default_factory=dict)
    traceback: tuple[Worker, tuple[str, ...]] | None = None
    metrics: RunMetrics = field(default_factory=RunMetrics)
    has_all_lines: bool = True


def print_local_start(plan: Plan) -> None:
    if plan.local is None:
        raise ValueError("not a plan of a local run")
    console = Console(highlight=False)
    run = plan.local
    hosts, workers = count(run.hosts, "host"), count(run.workers_per_host, "worker")
    console.print(Text(plan.job, "bold"), f"local run: {hosts} x {workers}", sep="  ")
    data = [f"{channel}: {short(path)}" for channel, path in run.data.items()]
    links = {None: [], OWN_NETWORK: ["the job's own"]}.get(run.network, [f"links of {run.network}"])
    cuda = ["emulated on the CPU (docs/how-to/cuda-on-cpu.md)"] if run.cuda_on_cpu else []
    names = iter(host_names(run.all_hosts)[run.hosts :])
    others = [f"{next(names)}: {group}" for group, number in run.other_hosts.items() for _ in range(number)]
    rows = [
        *rank_rows(plan),
        *titled("others", others),
        *titled("data", data),
        *titled("network", links),
        *titled("CUDA", cuda),
    ]
    rows += titled("not simulated", run.not_simulated)
    print_rows(console, rows)


def print_local_end(plan: Plan, result: FollowResult, object_path: ObjectPath) -> None:
    """Args:
    object_path: returns the file of an object in the local cloud, given its bucket and key.
    """
    ended, rows = result.outcome, []
    if ended.model is not None:
        model = S3Location.parse(ended.model)
        path = object_path(model.bucket, model.key)
        if path is not None:
            rows.append(("model", short(path)))
    is_done = ended.status == "Completed" and ended.model is None and not ended.wrote_nothing
    then = next_after_local_run(plan.job_file, plan.placeholders) if is_done else next_after_end(plan.job, None, ended)
    rows += titled("workers", list(needs_more_workers(plan, ended)))
    if ended.status == "Failed":
        from smdp_launch.doctor.failures import environment_causes  # few runs fail

        rows += titled("environment", list(environment_causes(plan, ended.reason, known_cloud_folder())))
    _print_end(plan.job, result, [*rows, ("next", then)])


def print_end(job: str, region: str | None, result: FollowResult) -> None:
    """Print the end of a job on AWS, or of any job that was named on the command line."""
    ended = result.outcome
    rows = [("model", ended.model)] if ended.model is not None else []
    _print_end(job, result, [*rows, ("next", next_after_end(job, region, ended))])


def print_detached(job: str) -> None:
    console = Console(highlight=False)
    console.print(Text(job, "bold"), "is launched and runs in the background", sep="  ")
    print_next(command_for_job("follow", job))


def _print_end(job: str, result: FollowResult, more: list[tuple[str, str]]) -> None:
    outcome = result.outcome
    console = Console(highlight=False)
    seconds = f" after {duration(outcome.training_seconds)} of training" if outcome.training_seconds else ""
    good = outcome.status == "Completed"
    console.print(Text(f"{job} {outcome.summary}{seconds}", "bold green" if good else "bold red"))
    rows = titled("reason", outcome.reason.splitlines())
    rows += _traceback_rows(result)
    values = metrics(result.results)
    if values:
        rows.append(("result", ", ".join(values)))
    rows += number_rows(result.metrics)
    if outcome.wrote_nothing:
        rows.append(("warning", f"the job has no results: {WROTE_NOTHING}"))
    print_rows(console, [*rows, *more])


def _traceback_rows(result: FollowResult) -> list[tuple[str, str]]:
    """The traceback of the rank that failed first, unless the reason contains it: the service truncates the reason."""
    if result.traceback is None or result.outcome.status != "Failed":
        return []
    (host, rank), lines = result.traceback
    if "\n".join(lines) in result.outcome.reason:
        return []
    return titled(f"rank {rank}", [f"on {host}:", *lines])
