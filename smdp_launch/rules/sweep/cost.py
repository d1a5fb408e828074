"""What a sweep may cost."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.prices import command_for_prices
from smdp_launch.request.cost import highest_price
from smdp_launch.request.sweep_cost import sweep_bounds
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.sweep.section import section

_MAX = ("sweep", "budget", "max_usd")
_HOURS = ("compute.instance_count", "compute.max_run", "compute.keep_alive")
_PRICED = ("compute.instance_type", "compute.other_groups", "compute.fallback_types", "region", "budget.prices")


@rule("SMDP529", *_HOURS, *_PRICED)
def sweep_is_within_its_budget(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or sweep.budget.max_usd is None or facts.local or facts.prices is None:
        return
    bounds, allowed = sweep_bounds(facts.spec, facts.prices), sweep.budget.max_usd
    if bounds.usd is None or bounds.usd <= allowed:
        return
    bill = f"{bounds.usd:,.2f} USD for {bounds.instance_hours:,.2f} instance-hours"
    message = (
        f"{bounds.trials} trials may cost {bill} ({facts.prices.source}, {facts.prices.date}); the sweep's budget is "
        f"{allowed:,.2f} USD"
    )
    help_ = "use fewer trials, lower `compute.max_run` or `sweep.budget.max_run`, or raise `max_usd`"
    yield Problem(_MAX, message, help_)


@rule("SMDP530", *_PRICED)
def budget_can_be_checked(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or sweep.budget.max_usd is None or facts.local or facts.price_problems:
        return
    if facts.spec.region == REGION:
        return  # a job with the placeholder region cannot be launched
    message = f"the sweep's budget is {sweep.budget.max_usd:,.2f} USD, but the price of a trial is not known"
    if facts.prices is None:
        yield Problem(_MAX, message, f"name a price table with `budget: {{prices: FILE}}`, {_or_fetch(facts)}")
    elif highest_price(facts.spec, facts.prices) is None:
        table = facts.spec.budget.prices or f"a price table, {_or_fetch(facts)}"
        help_ = f"add the instance types of the job in {facts.spec.region} to {table}"
        yield Problem(_MAX, message, help_)


def _or_fetch(facts: Facts) -> str:
    return f"or fetch AWS's prices: {command_for_prices(facts.spec.region)}"
