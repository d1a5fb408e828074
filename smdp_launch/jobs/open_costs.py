"""Asks the service for the ends of the folder's jobs and for what is billed now, and records what is final."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.records.history import LOCAL, ends, entries, launches, record_end, record_retained
from smdp_launch.jobs.records.lines import Launch, Retained
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.jobs.service.clients import Clients, connection, ignore_waiting
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.spending.ledger import Open, pool_of
from smdp_launch.jobs.status.description import billed_seconds, describe_training_job, description
from smdp_launch.jobs.status.list_jobs import place_of, update_statuses
from smdp_launch.jobs.sweeps import SweepState, describe_sweep

#: Statuses of a warm pool after which nothing more is billed.
_OVER = frozenset({"Terminated", "Reused"})
#: In place of a status: the job was not created, or it runs in another account.
_UNKNOWN = "unknown to this account"


def refresh(on_waiting: Callable[[Waiting], None] = ignore_waiting) -> tuple[dict[str, Open], list[str]]:
    """What is billed now, by the names of `Ledger.current`, and the problems of services that could not be asked."""
    ended = ends()
    on_aws = [one for one in launches() if one.where != LOCAL]
    running = [one for one in on_aws if one.job not in ended]
    statuses, unreachable, unknown = update_statuses(running, on_waiting)
    found = {job: Open(_UNKNOWN, None) for job in unknown}
    problems = list(unreachable.values())
    over = {one.job for one in entries(Retained)}
    now = ends()
    asked = [one for one in running if statuses.get(one.job) is not None and (one.sweep or one.job not in now)]
    asked += [one for one in on_aws if one.keep_alive and one.job in now and one.job not in over]
    for place in dict.fromkeys(place_of(one) for one in asked if place_of(one) not in unreachable):
        try:
            with connection(*place)() as clients:
                clients.on_waiting = on_waiting
                found |= _now(clients, [one for one in asked if place_of(one) == place])
        except SmdpError as error:
            problems.append(str(error))
    return found, list(dict.fromkeys(problems))


def _now(clients: Clients, asked: Iterable[Launch]) -> dict[str, Open]:
    found: dict[str, Open] = {}
    for launch in asked:
        if launch.sweep:
            sweep = describe_sweep(clients, launch.job)
            if not sweep.has_ended:
                found[launch.job] = Open(sweep.status, _trial_seconds(clients, sweep)[0])
            record_sweep_end(clients, sweep)
            continue
        described = describe_training_job(clients, launch.job)
        if described["TrainingJobStatus"] not in ENDED:
            known = description(described, datetime.now(timezone.utc))
            found[launch.job] = Open(known.secondary, int(billed_seconds(known)))
        pool = described.get("WarmPoolStatus")
        if pool is not None and described["TrainingJobStatus"] in ENDED:
            found |= _pool(launch.job, described, pool)
    return found


def _pool(job: str, described: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Open]:
    if pool["Status"] in _OVER:
        record_retained(Retained(job, str(pool["Status"]), int(pool.get("ResourceRetainedBillableTimeInSeconds", 0))))
        return {}
    return {pool_of(job): Open(str(pool["Status"]), _seconds_since(described.get("TrainingEndTime")))}


def _seconds_since(moment: datetime | None) -> int:
    if moment is None:
        return 0
    return max(0, (datetime.now(timezone.utc) - moment) // timedelta(seconds=1))


def record_sweep_end(clients: Clients, sweep: SweepState) -> None:
    """Record the end of a sweep in the history of this folder, with the seconds of its trials on AWS."""
    if not sweep.has_ended or sweep.name in ends():
        return
    launched = next((one for one in launches() if one.job == sweep.name), None)
    if launched is None:
        return
    billed, trained = (None, None) if launched.where == LOCAL else _trial_seconds(clients, sweep)
    ended = Outcome(sweep.status, sweep.exit_code, sweep.status.lower(), instance_type=launched.instance_type)
    ended = replace(ended, billable_seconds=billed, training_seconds=trained)
    record_end(sweep.name, ended, datetime.now(timezone.utc))


def _trial_seconds(clients: Clients, sweep: SweepState) -> tuple[int, int]:
    """The billable and the training seconds of one host, of all trials that have ended."""
    billed = trained = 0
    for one in sweep.trials:
        if one.status in ENDED:
            described = describe_training_job(clients, one.job)
            billed += int(described.get("BillableTimeInSeconds", 0))
            trained += int(described.get("TrainingTimeInSeconds", 0))
    return billed, trained
