"""Upper bounds of a job's cost: the hours of its limits, and the prices of a table. Nothing is estimated."""

from __future__ import annotations

from smdp_launch.catalog.instances import has_no_accelerators
from smdp_launch.catalog.prices import PriceTable, instance_hours
from smdp_launch.host_counts import hosts_by_type
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.groups import host_count
from smdp_launch.request.resources import resource_config


def training_hours(spec: JobSpec) -> float:
    """Instance-hours of all hosts together, at the limit of ``compute.max_run``."""
    return instance_hours(host_count(spec), spec.compute.max_run)


def warm_hours(spec: JobSpec) -> float:
    """Instance-hours of the warm pool after the job, at most."""
    return instance_hours(host_count(spec), spec.compute.keep_alive or 0)


def billed_hours(spec: JobSpec) -> float:
    """Instance-hours of training and of the warm pool, at most."""
    return training_hours(spec) + warm_hours(spec)


def instance_types(spec: JobSpec) -> list[str]:
    """The types that the hosts that train can get."""
    return [spec.compute.instance_type, *(spec.compute.fallback_types or ())]


def priced_types(spec: JobSpec) -> list[str]:
    """All types that the job can be billed for."""
    return list(hosts_by_type(resource_config(spec))) or instance_types(spec)


def pending_is_limited(spec: JobSpec) -> bool:
    """Whether ``compute.max_pending`` has an effect: SageMaker ignores it for jobs without accelerators (API reference,
    StoppingCondition)."""
    others = [one.instance_type for one in (spec.compute.other_groups or {}).values()]
    return not all(has_no_accelerators(one) for one in [*instance_types(spec), *others])


def highest_price(spec: JobSpec, prices: PriceTable) -> float | None:
    """USD an hour of one host: of the most expensive type that the job can get, or the mean of the hosts of all groups.
    None if the table lacks a price."""
    if spec.compute.other_groups:
        return prices.mean_hourly(spec.region, hosts_by_type(resource_config(spec)))
    hourly = [prices.hourly(spec.region, one) for one in instance_types(spec)]
    return None if None in hourly else max(one for one in hourly if one is not None)


def most_usd(spec: JobSpec, prices: PriceTable) -> float | None:
    """The most USD that the job can cost; None if the table lacks a price."""
    price = highest_price(spec, prices)
    return None if price is None else price * billed_hours(spec)


def serving_hourly(spec: JobSpec, prices: PriceTable | None) -> float | None:
    """USD an hour of all hosts that serve the model; None without a price, and for a serverless endpoint."""
    serve = spec.serve
    if prices is None or serve is None or serve.instance_type is None or serve.kind == "serverless":
        return None
    price = prices.hosting_hourly(spec.region, serve.instance_type)
    return None if price is None else price * serve.instance_count
