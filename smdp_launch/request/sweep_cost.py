"""Upper bounds of what a sweep costs: the hours of its limits, and the prices of a table. Nothing is estimated."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.prices import PriceTable, instance_hours
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.cost import highest_price, training_hours, warm_hours
from smdp_launch.request.groups import host_count
from smdp_launch.request.tuning import trials


class SweepBounds(NamedTuple):
    """Args:
    trials: the most trials.
    seconds: the most run time from the first trial's start; without waits for capacity and the start of hosts.
    instance_hours: of all trials together.
    usd: None without a price.
    """

    trials: int
    seconds: int
    instance_hours: float
    usd: float | None


def sweep_bounds(spec: JobSpec, prices: PriceTable | None) -> SweepBounds:
    """The bounds of the job's section ``sweep``."""
    sweep = spec.sweep
    if sweep is None:
        raise ValueError("the job file has no section sweep")
    count = trials(sweep)
    at_a_time = min(sweep.parallel, count)
    seconds, hours = -(-count // at_a_time) * spec.compute.max_run, count * training_hours(spec)
    limit = sweep.budget.max_run
    if limit is not None:
        # Trials that still run at the end are stopped.
        seconds, hours = min(seconds, limit), min(hours, at_a_time * instance_hours(host_count(spec), limit))
    hours += count * warm_hours(spec)
    price = highest_price(spec, prices) if prices is not None else None
    return SweepBounds(count, seconds, hours, price * hours if price is not None else None)
