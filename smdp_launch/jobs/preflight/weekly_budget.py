"""Check of the weekly budget: what was launched in this ISO week, with this job, costs no more than it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from smdp_launch.catalog.prices import PriceTableProblem
from smdp_launch.jobs.preflight.check import Account, NotChecked
from smdp_launch.jobs.records.folders import known_folders
from smdp_launch.jobs.records.history import LOCAL, ends, launches
from smdp_launch.jobs.records.lines import Launch
from smdp_launch.jobs.spending.groups import start_of_week, week_of
from smdp_launch.jobs.spending.ledger import Ledger, Prices, Spent
from smdp_launch.jobs.status.list_jobs import update_statuses
from smdp_launch.rules.base.facts import Problem
from smdp_launch.units import count

_AT = ("budget", "max_usd_per_week")


@dataclass(frozen=True)
class WeekSpent:
    """Args:
    usd: what jobs that have ended cost, what jobs that have not can cost at most, and what endpoints cost until now.
    unknown: how many costs are not known.
    """

    usd: float
    unknown: int


def weekly_budget(account: Account) -> Iterator[Problem | str]:
    plan, now = account.plan, datetime.now(timezone.utc)
    allowed = plan.spec.budget.max_usd_per_week
    if allowed is None:
        yield "no weekly budget"
        return
    most = plan.sweep_bounds.usd if plan.sweep_bounds is not None else plan.billing.usd
    if most is None:
        raise NotChecked("the price of the job is not known")
    # A job that has ended costs less than it could have. One that the account does not know may run in another account.
    running = [(one, folder) for folder in _folders() for one in _running(folder, now) if one.job != plan.job]
    launched, places = [one for one, _ in running], {one.job: folder for one, folder in running}
    update_statuses(launched, account.clients.on_waiting, places)
    try:
        spent = week_spent(now, plan.job)
    except PriceTableProblem as problem:
        raise NotChecked(str(problem)) from problem
    unknown = f", and {count(spent.unknown, 'cost')} of this week not known" if spent.unknown else ""
    total = f"{spent.usd:,.2f} USD of {allowed:,.2f} USD in {week_of(now)}{unknown}"
    if spent.usd + most <= allowed:
        yield f"{total}; the job {most:,.2f} USD at most"
        return
    until = start_of_week(now) + timedelta(days=7)
    message = f"the job may cost {most:,.2f} USD, and this week's jobs and endpoints {total}"
    help_ = f"lower `compute.max_run`, wait until {until:%Y-%m-%d} 00:00 UTC, or raise the budget; `smdp-launch cost"
    yield Problem(_AT, message, f"{help_} --by week` shows what was spent")


def _folders() -> list[Path]:
    return list(dict.fromkeys([Path.cwd(), *known_folders()]))


def _running(folder: Path, now: datetime) -> Iterator[Launch]:
    """The launches on AWS in the week of ``now`` without a recorded end."""
    ended, begin = ends(folder), start_of_week(now)
    for one in launches(folder):
        if one.where != LOCAL and one.job not in ended and datetime.fromisoformat(one.time) >= begin:
            yield one


def week_spent(now: datetime, without: str = "") -> WeekSpent:
    """What was spent in the ISO week of ``now``, in all folders from which this user launched jobs on this machine.

    Args:
        without: the name of a job that is not counted.

    Raises:
        PriceTableProblem: a fetched price table cannot be used.
    """
    prices, begin = Prices(), start_of_week(now)
    ledgers = [Ledger(prices, now, folder) for folder in _folders()]
    rows = [one for ledger in ledgers for one in ledger.rows if one.name != without]
    costs = [_cost_since(one, begin) for one in rows if one.kind == "endpoint" or one.began >= begin]
    return WeekSpent(sum(one for one in costs if one is not None), costs.count(None))


def _cost_since(row: Spent, begin: datetime) -> float | None:
    if row.kind != "endpoint":
        return row.usd if row.usd is not None else row.most_usd
    if row.seconds is None or row.hosts is None:
        return 0.0 if row.hosts is None or not row.is_open else None  # billed for requests, or it ends by itself
    end = row.began + timedelta(seconds=row.seconds)
    seconds = max(0.0, (end - max(row.began, begin)).total_seconds())
    if seconds == 0:
        return 0.0
    return None if row.price is None else row.price * row.hosts * seconds / 3600
