"""What a job is billed for at most. Nothing is estimated: hours are those of its limits, prices those of a table."""

from __future__ import annotations

from smdp_launch.catalog.prices import PriceTable, instance_hours
from smdp_launch.jobfile.model.spec import JobSpec


def training_hours(spec: JobSpec) -> float:
    """Instance-hours of all hosts together, at the limit of ``compute.max_run``."""
    return instance_hours(spec.compute.instance_count, spec.compute.max_run)


def warm_hours(spec: JobSpec) -> float:
    """Instance-hours that a warm pool may stay afterwards."""
    return instance_hours(spec.compute.instance_count, spec.compute.keep_alive or 0)


def billed_hours(spec: JobSpec) -> float:
    """Instance-hours at most: of training, and of the warm pool."""
    return training_hours(spec) + warm_hours(spec)


def instance_types(spec: JobSpec) -> list[str]:
    """Those that the job may get."""
    return [spec.compute.instance_type, *(spec.compute.fallback_types or ())]


def highest_price(spec: JobSpec, prices: PriceTable) -> float | None:
    """USD an hour of the dearest type that the job may get; None if the table lacks one of them."""
    known = [prices.hourly(spec.region, one) for one in instance_types(spec)]
    return None if None in known else max(one for one in known if one is not None)


def most_usd(spec: JobSpec, prices: PriceTable) -> float | None:
    """What the job costs at most; None if the table lacks a price."""
    price = highest_price(spec, prices)
    return None if price is None else price * billed_hours(spec)
