"""The budget of a job, and the price table that it is checked with."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.prices import command_for_prices
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.cost import billed_hours, most_usd, priced_types
from smdp_launch.rules.base.facts import Facts, Problem, rule

_BUDGET = ("budget", "max_usd")
WEEKLY_BUDGET = ("budget", "max_usd_per_week")
_HOURS = ("compute.instance_count", "compute.max_run", "compute.keep_alive")
_PRICED = (
    *("compute.instance_type", "compute.instance_count", "compute.other_groups", "compute.fallback_types"),
    *("region", "budget.prices"),
)


@rule("SMDP802", "budget.prices")
def prices_can_be_read(facts: Facts) -> Iterator[Problem]:
    if facts.price_problems:
        named, region = facts.spec.budget.prices, facts.spec.region
        table = named if named is not None else f"that was fetched for {region}"
        message = f"the price table {table} cannot be used: {'; '.join(facts.price_problems)}"
        help_ = "fix the table; `smdp-launch explain SMDP802` shows an example"
        if named is None:
            help_ = f"fetch it again: {command_for_prices(region)}"
        yield Problem(("budget", "prices"), message, help_)


@rule("SMDP803", "budget.max_usd", *_HOURS, *_PRICED)
def cost_is_within_budget(facts: Facts) -> Iterator[Problem]:
    allowed, prices = facts.spec.budget.max_usd, facts.prices
    usd = most_usd(facts.spec, prices) if prices is not None else None
    if facts.local or allowed is None or prices is None or usd is None or usd <= allowed:
        return
    bill = f"{usd:,.2f} USD for {billed_hours(facts.spec):.2f} instance-hours ({prices.source}, {prices.date})"
    message = f"the job may cost {bill}; the budget is {allowed:,.2f} USD"
    fits = int(facts.spec.compute.max_run * allowed / usd)
    help_ = "lower `compute.max_run`"
    if not facts.spec.compute.keep_alive and fits:
        help_ += f" to {fits} s at most"
    yield Problem(_BUDGET, message, f"{help_}, use fewer hosts, or raise `budget.max_usd`")


@rule("SMDP804", "budget.max_usd", *_PRICED)
def budget_can_be_checked(facts: Facts) -> Iterator[Problem]:
    allowed = facts.spec.budget.max_usd
    if allowed is not None:
        yield from _without_price(facts, _BUDGET, f"the budget is {allowed:,.2f} USD")


@rule("SMDP551", "budget.max_usd_per_week", *_PRICED)
def weekly_budget_can_be_checked(facts: Facts) -> Iterator[Problem]:
    allowed = facts.spec.budget.max_usd_per_week
    if allowed is not None:
        yield from _without_price(facts, WEEKLY_BUDGET, f"the weekly budget is {allowed:,.2f} USD")


def _without_price(facts: Facts, at: Location, budget: str) -> Iterator[Problem]:
    if facts.local or facts.price_problems or facts.spec.region == REGION:
        return  # a job with the placeholder region cannot be launched
    message = f"{budget}, but the price of the job is not known"
    if facts.prices is None:
        yield Problem(at, message, _how_to_price(facts.spec.region))
        return
    region, table = facts.spec.region, facts.spec.budget.prices
    unpriced = [one for one in priced_types(facts.spec) if facts.prices.hourly(region, one) is None]
    if unpriced:
        help_ = f"add {', '.join(unpriced)} in {region} to {table}"
        if table is None:
            help_ = f"AWS's prices of {facts.prices.date} have no {', '.join(unpriced)}: {_how_to_price(region)}"
        yield Problem(at, message, help_)


def _how_to_price(region: str) -> str:
    return f"name a price table with `budget: {{prices: FILE}}`, or fetch AWS's prices: {command_for_prices(region)}"
