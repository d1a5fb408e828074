"""What a launch may cost: the ceiling that somebody set, and the prices it is held against."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.placeholders import REGION
from smdp_launch.request.cost import billed_hours, instance_types, most_usd
from smdp_launch.rules.base.facts import Facts, Finding, rule

_CEILING = ("budget", "max_usd")
_HOURS = ("compute.instance_count", "compute.max_run", "compute.keep_alive")
_PRICED = ("compute.instance_type", "compute.fallback_types", "region", "budget.prices")


@rule("SMDP802", "budget.prices")
def prices_can_be_read(facts: Facts) -> Iterator[Finding]:
    if facts.price_problems:
        message = f"the price table {facts.spec.budget.prices} cannot be used: {'; '.join(facts.price_problems)}"
        help_ = "fix it; `smdp-launch explain SMDP802` shows one"
        yield Finding(("budget", "prices"), message, help_)


@rule("SMDP803", "budget.max_usd", *_HOURS, *_PRICED)
def within_the_ceiling(facts: Facts) -> Iterator[Finding]:
    ceiling, prices = facts.spec.budget.max_usd, facts.prices
    usd = most_usd(facts.spec, prices) if prices is not None else None
    if facts.local or ceiling is None or prices is None or usd is None or usd <= ceiling:
        return
    bill = f"{usd:,.2f} USD for {billed_hours(facts.spec):.2f} instance-hours ({prices.source}, {prices.date})"
    message = f"the job may cost {bill}, and {ceiling:,.2f} USD are allowed"
    fits = int(facts.spec.compute.max_run * ceiling / usd)
    help_ = "lower `compute.max_run`"
    if not facts.spec.compute.keep_alive and fits:
        help_ += f" to {fits} s at most"
    yield Finding(_CEILING, message, f"{help_}, take fewer hosts, or raise `budget.max_usd`")


@rule("SMDP804", "budget.max_usd", *_PRICED)
def ceiling_can_be_checked(facts: Facts) -> Iterator[Finding]:
    budget = facts.spec.budget
    if facts.local or budget.max_usd is None or facts.price_problems or facts.spec.region == REGION:
        return  # nothing is launched in a drafted region
    message = f"{budget.max_usd:,.2f} USD are allowed, and no price is known to hold the job against"
    if facts.prices is None:
        yield Finding(_CEILING, message, "name a table of prices with `budget: {prices: FILE}`")
        return
    region = facts.spec.region
    unpriced = [one for one in instance_types(facts.spec) if facts.prices.hourly(region, one) is None]
    if unpriced:
        help_ = f"add {', '.join(unpriced)} in {region} to {budget.prices}"
        yield Finding(_CEILING, message, help_)
