"""What a job costs until now: the price of its hosts, and the seconds that are billed."""

from __future__ import annotations

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.jobs.records.history import LOCAL, find_launch
from smdp_launch.jobs.status.description import Description, billed_seconds


def price_of(described: Description, where: str, prices: PriceTable | None = None) -> float | None:
    """USD an hour of one host, with several groups the mean of all: from the table, else from the launch. The highest
    price while the service has not selected one of several types. None for a local run, or if it is unknown."""
    if where == LOCAL:
        return None
    if prices is not None and described.types:
        return prices.mean_hourly(where, described.types)
    if prices is not None and described.instance_type is not None:
        return prices.hourly(where, described.instance_type)
    launched = find_launch(described.job)
    return launched.price_of(described.instance_type) if launched is not None else None


def usd(described: Description, price: float | None) -> float | None:
    """The cost until now of all hosts, in USD."""
    if price is None:
        return None
    ended = described.outcome
    if ended is not None and ended.billable_seconds is not None:
        return price * described.hosts * ended.billable_seconds / 3600
    return price * described.hosts * billed_seconds(described) / 3600
