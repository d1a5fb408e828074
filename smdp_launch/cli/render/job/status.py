"""The status of a job, for a person and for a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timezone
from typing import Any

from rich.text import Text

from smdp_launch.cli.render.job.verdict import verdict_text
from smdp_launch.cli.render.next_step import command_for_job, next_for_job, print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.diagnosis.time_shares import time_text
from smdp_launch.errors import SmdpError
from smdp_launch.jobs.checkpoints.listing import Checkpoints
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.jobs.status.description import Description
from smdp_launch.run_metrics.network import NetworkReport
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.summary import numbers_json, progress_text, totals_text
from smdp_launch.units import count, duration, size, titled

#: Versions of ``status --json`` and ``stop --json``; raised when a field changes its meaning or is removed.
_VERSION = 1
_STOP_VERSION = 1
_MOST_METRICS = 8  # in a line

#: The checkpoints, None if there are none yet, or the error of listing them.
CheckpointListing = Checkpoints | SmdpError | None


@dataclass(frozen=True)
class RunNow:
    """Args:
    metrics: of the last minutes; the error of reading the log; None before there is a log.
    usd: the cost until now; None if it is unknown.
    network: what the probe at the start found; None without a probe.
    """

    metrics: RunMetrics | SmdpError | None = None
    usd: float | None = None
    network: NetworkReport | None = None

    @property
    def numbers(self) -> RunMetrics | None:
        return self.metrics if isinstance(self.metrics, RunMetrics) else None


def print_status(
    job: Job, description: Description, checkpoints: CheckpointListing = None, run: RunNow | None = None
) -> None:
    console = Console(highlight=False)
    ended = description.outcome
    style = "" if ended is None else "bold green" if ended.status == "Completed" else "bold red"
    state = Text(ended.summary if ended is not None else description.secondary, style)
    console.print(Text(description.job, "bold"), state, sep="  ")
    created = f"{description.created.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    rows = [("where", f"{place(job.where)}, {_hosts(job, description)}"), ("created", created)]
    rows += titled("steps", [_step(one.status, one.seconds, one.message) for one in description.steps])
    rows += _run_rows(description, run or RunNow())
    if description.checkpoints is not None:
        rows += titled("checkpoints", [description.checkpoints, _checkpoint_text(checkpoints)])
    if ended is not None:
        rows += titled("reason", ended.reason.splitlines())
        if ended.billable_seconds is not None:
            name = "billed" if job.where != LOCAL else "runtime"
            rows.append((name, runtime(job.where, ended.billable_seconds, description.hosts)))
            saved = saving(ended) if job.where != LOCAL else None
            if saved is not None:
                rows.append(("spot", saved))
        if ended.model is not None:
            rows.append(("model", ended.model))
    if description.warm_pool is not None:
        rows.append(("warm pool", description.warm_pool))
    if description.remote_debug and ended is None and job.where != LOCAL:
        rows.append(("shell", f"aws ssm start-session --target sagemaker-training-job:{description.job}_algo-1"))
    print_rows(console, rows)
    print_next(_next(job, description))


def saving(ended: Outcome) -> str | None:
    """What spot capacity saved, as the service counts it; None if it saved nothing."""
    trained, billed = ended.training_seconds, ended.billable_seconds
    if not trained or billed is None or billed >= trained:
        return None
    return f"{1 - billed / trained:.0%} saved: {duration(billed)} billed of {duration(trained)}"


def _run_rows(description: Description, run: RunNow) -> Iterator[tuple[str, str]]:
    """How far, how fast and how much."""
    if isinstance(run.metrics, SmdpError):
        yield "progress", f"unknown: {run.metrics}"
    elif run.metrics is not None and description.outcome is None:
        progress = progress_text(run.metrics)
        if progress:
            yield "progress", progress
        if run.metrics.saves.saves:
            yield "saves", run.metrics.saves.text()
    elif run.metrics is not None:
        yield from number_rows(run.metrics, metrics_too=True)
    if run.network is not None:
        yield from titled("network", list(run.network.lines()))
    if run.usd is not None:
        yield "cost", f"{run.usd:,.2f} USD{' so far' if description.outcome is None else ''}"


def number_rows(metrics: RunMetrics, *, metrics_too: bool = False) -> Iterator[tuple[str, str]]:
    """The whole run in numbers: steps and rates, where the time went, and the verdict.

    Args:
        metrics_too: the last value of each metric too.
    """
    speed, shares, verdict = totals_text(metrics), time_text(metrics), verdict_text(metrics)
    if speed:
        yield "speed", speed
    if metrics_too and metrics.metrics:
        last = [f"{name} {value}" for name, one in metrics.metrics.items() if (value := one.shown()) is not None]
        yield "metrics", ", ".join(last[:_MOST_METRICS])
    if shares:
        yield "time", shares
    if metrics.saves.saves:
        yield "saves", metrics.saves.text()
    if verdict:
        yield "verdict", verdict


def _checkpoint_text(checkpoints: CheckpointListing) -> str:
    if checkpoints is None:
        return "nothing yet"
    if isinstance(checkpoints, SmdpError):
        return str(checkpoints)
    age = f", {duration(round(checkpoints.age))} old" if checkpoints.age is not None else ""
    return f"{count(checkpoints.files, 'file')} ({size(checkpoints.size)}), the newest {checkpoints.name}{age}"


def _hosts(job: Job, description: Description) -> str:
    """The hosts that the job runs on: a local run simulates them."""
    if job.where == LOCAL:
        workers = (
            f" x {count(description.workers_per_host, 'worker')}" if description.workers_per_host is not None else ""
        )
        return f"{count(description.hosts, 'simulated host')}{workers}"
    return description.hosts_text


def runtime(where: str, seconds: int, hosts: int | None) -> str:
    """The time and the hosts of a job; a local run costs nothing."""
    amount = f" x {count(hosts, 'host')}" if hosts is not None else ""
    return f"{duration(seconds)}{amount}{', not billed' if where == LOCAL else ''}"


def place(where: str) -> str:
    return "this machine" if where == LOCAL else where


def _step(status: str, seconds: float, message: str) -> str:
    return f"{status}, {duration(round(seconds))}{f': {message}' if message else ''}"


def _next(job: Job, description: Description) -> str:
    if description.outcome is not None and description.outcome.status == "Failed":
        return command_for_job("logs", job.name, job.region)  # they have the traceback
    return next_for_job(job, description)


def status_json(
    job: Job, description: Description, checkpoints: CheckpointListing = None, run: RunNow | None = None
) -> dict[str, Any]:
    ended = description.outcome
    known = run or RunNow()
    return {
        "status": _VERSION,
        "job": description.job,
        "where": job.where,
        "training_job_status": description.status,
        "secondary_status": description.secondary,
        "created": description.created.isoformat(),
        "hosts": description.hosts,
        "instance_type": description.instance_type,
        **({"types": dict(description.types)} if description.types else {}),
        "max_run_seconds": description.max_run,
        "checkpoints": description.checkpoints,
        "checkpoints_kept": _checkpoints_json(checkpoints) if description.checkpoints is not None else None,
        "steps": [
            {"status": one.status, "message": one.message, "began": one.began.isoformat(), "seconds": one.seconds}
            for one in description.steps
        ],
        "outcome": outcome_json(ended) if ended is not None else None,
        "numbers": numbers_json(known.numbers) if known.numbers is not None else None,
        "numbers_problem": str(known.metrics) if isinstance(known.metrics, SmdpError) else None,
        "usd": known.usd,
        "network": known.network.to_json() if known.network is not None else None,
        "warm_pool": description.warm_pool,
    }


def _checkpoints_json(checkpoints: CheckpointListing) -> dict[str, Any]:
    if not isinstance(checkpoints, Checkpoints):
        problem = str(checkpoints) if checkpoints is not None else None
        none: dict[str, Any] = dict.fromkeys(("bytes", "name", "newest", "age_seconds"))
        return {"files": 0 if problem is None else None, **none, "problem": problem}
    newest = {"name": checkpoints.name, "newest": checkpoints.newest.isoformat(), "age_seconds": checkpoints.age}
    return {"files": checkpoints.files, "bytes": checkpoints.size, **newest, "problem": None}


def outcome_json(ended: Outcome) -> dict[str, Any]:
    return {
        "summary": ended.summary,
        "exit_code": int(ended.exit_code),
        "reason": ended.reason,
        "model": ended.model,
        "training_seconds": ended.training_seconds,
        "billable_seconds": ended.billable_seconds,
    }


def print_stopped(job: Job, status: str, description: Description) -> None:
    """Args:
    status: from the service's answer to the stop.
    description: of the job after the stop.
    """
    console = Console(highlight=False)
    effect = "the job has ended already" if status in ENDED else "the script has 120 s to save its state"
    console.print(Text(job.name, "bold"), Text(f"{status}: {effect}"), sep="  ")
    print_next(_next(job, description))


def stopped_json(job: Job, status: str) -> dict[str, Any]:
    return stop_document(job.name, job.where, status)


def stop_document(name: str, where: str, status: str) -> dict[str, Any]:
    """Of a job or a sweep."""
    return {"stop": _STOP_VERSION, "job": name, "where": where, "training_job_status": status}
