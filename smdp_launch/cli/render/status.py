"""How far a job is, for a person and for a program."""

from __future__ import annotations

from datetime import timezone
from typing import Any

from rich.text import Text

from smdp_launch.cli.render.next import command_for_job, next_for, say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.errors import SmdpError
from smdp_launch.jobs.checkpoints.listing import Checkpoints
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.jobs.status.description import Description
from smdp_launch.units import count, duration, size, titled

#: Versions of ``status --json`` and ``stop --json``; raised when a member changes its meaning or goes.
_VERSION = 1
_STOP_VERSION = 1


#: What lies at the checkpoint location, or why that is not known.
Kept = Checkpoints | SmdpError | None


def show_status(job: Job, found: Description, kept: Kept = None) -> None:
    console = Console(highlight=False)
    ended = found.outcome
    style = "" if ended is None else "bold green" if ended.status == "Completed" else "bold red"
    told = Text(ended.summary if ended is not None else found.secondary, style)
    console.print(Text(found.job, "bold"), told, sep="  ")
    created = f"{found.created.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    rows = [("where", f"{place(job.where)}, {_hosts(job, found)}"), ("created", created)]
    rows += titled("steps", [_step(one.status, one.seconds, one.message) for one in found.steps])
    if found.checkpoints is not None:
        rows += titled("checkpoints", [found.checkpoints, _kept(kept)])
    if ended is not None:
        rows += titled("reason", ended.reason.splitlines())
        if ended.billable_seconds is not None:
            name = "billed" if job.where != LOCAL else "ran"
            rows.append((name, runtime(job.where, ended.billable_seconds, found.hosts)))
        if ended.model is not None:
            rows.append(("model", ended.model))
    print_rows(console, rows)
    say_next(_next(job, found))


def _kept(kept: Kept) -> str:
    if kept is None:
        return "nothing yet"
    if isinstance(kept, SmdpError):
        return str(kept)
    age = f", {duration(round(kept.age))} old" if kept.age is not None else ""
    return f"{count(kept.files, 'file')} ({size(kept.size)}), the newest {kept.name}{age}"


def _hosts(job: Job, found: Description) -> str:
    """What the job runs on: a local run imitates instances, and has none."""
    if job.where == LOCAL:
        workers = f" x {count(found.workers_per_host, 'worker')}" if found.workers_per_host is not None else ""
        return f"{count(found.hosts, 'simulated host')}{workers}"
    return count(found.hosts, "host") + (f" of {found.instance_type}" if found.instance_type is not None else "")


def runtime(where: str, seconds: int, hosts: int | None) -> str:
    """How long a job ran, on how many hosts; a local run costs nothing."""
    amount = f" x {count(hosts, 'host')}" if hosts is not None else ""
    return f"{duration(seconds)}{amount}{', not billed' if where == LOCAL else ''}"


def place(where: str) -> str:
    return "here" if where == LOCAL else where


def _step(status: str, seconds: float, message: str) -> str:
    return f"{status}, {duration(round(seconds))}{f': {message}' if message else ''}"


def _next(job: Job, found: Description) -> str:
    if found.outcome is not None and found.outcome.status == "Failed":
        return command_for_job("logs", job.name, job.region)  # the traceback is there
    return next_for(job, found)


def as_document(job: Job, found: Description, kept: Kept = None) -> dict[str, Any]:
    ended = found.outcome
    return {
        "status": _VERSION,
        "job": found.job,
        "where": job.where,
        "training_job_status": found.status,
        "secondary_status": found.secondary,
        "created": found.created.isoformat(),
        "hosts": found.hosts,
        "instance_type": found.instance_type,
        "max_run_seconds": found.max_run,
        "checkpoints": found.checkpoints,
        "checkpoints_kept": _kept_document(kept) if found.checkpoints is not None else None,
        "steps": [
            {"status": one.status, "message": one.message, "began": one.began.isoformat(), "seconds": one.seconds}
            for one in found.steps
        ],
        "outcome": outcome_document(ended) if ended is not None else None,
    }


def _kept_document(kept: Kept) -> dict[str, Any]:
    if not isinstance(kept, Checkpoints):
        problem = str(kept) if kept is not None else None
        none: dict[str, Any] = dict.fromkeys(("bytes", "name", "newest", "age_seconds"))
        return {"files": 0 if problem is None else None, **none, "problem": problem}
    newest = {"name": kept.name, "newest": kept.newest.isoformat(), "age_seconds": kept.age}
    return {"files": kept.files, "bytes": kept.size, **newest, "problem": None}


def outcome_document(ended: Outcome) -> dict[str, Any]:
    return {
        "summary": ended.summary,
        "exit_code": int(ended.exit_code),
        "reason": ended.reason,
        "model": ended.model,
        "training_seconds": ended.training_seconds,
        "billable_seconds": ended.billable_seconds,
    }


def show_stopped(job: Job, status: str, found: Description) -> None:
    """Args:
    status: as the answer to the stop has it.
    found: the job afterwards.
    """
    console = Console(highlight=False)
    told = "has ended already" if status in ENDED else "its script has 120 s to save what it needs"
    console.print(Text(job.name, "bold"), Text(f"{status}: {told}"), sep="  ")
    say_next(_next(job, found))


def stopped_document(job: Job, status: str) -> dict[str, Any]:
    return {"stop": _STOP_VERSION, "job": job.name, "where": job.where, "training_job_status": status}
