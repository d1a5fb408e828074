"""The lifetime of an endpoint and what it may cost."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.placeholders import REGION
from smdp_launch.diagnostics import Severity
from smdp_launch.request.cost import serving_hourly
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.serve.hosting import section

_MAX = ("serve", "max_usd")
_PRICED = ("serve.kind", "serve.instance_type", "serve.instance_count", "serve.lifetime", "region", "budget.prices")


@rule("SMDP805", *_PRICED, severity=Severity.WARNING)
def endpoint_has_an_end(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or serve.lifetime is not None or serve.kind not in ("realtime", "async") or facts.local:
        return
    hourly = serving_hourly(facts.spec, facts.prices)
    cost = f": {hourly * 24:,.2f} USD a day" if hourly is not None else ""
    message = f"the endpoint has no `lifetime`, so it is billed until you delete it{cost}"
    yield Problem(("serve",), message, "add `lifetime`, such as 7200 for two hours, or `silence: [SMDP805]`")


@rule("SMDP806", "serve.max_usd", *_PRICED)
def endpoint_is_within_its_limit(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or serve.max_usd is None or serve.lifetime is None or facts.local:
        return
    hourly = serving_hourly(facts.spec, facts.prices)
    usd = hourly * serve.lifetime / 3600 if hourly is not None else 0.0
    if usd <= serve.max_usd or hourly is None or facts.prices is None:
        return
    source = f"{facts.prices.source}, {facts.prices.date}"
    message = f"the endpoint may cost {usd:,.2f} USD in its lifetime ({source}); `max_usd` is {serve.max_usd:,.2f}"
    fits = int(serve.max_usd / hourly * 3600)
    help_ = f"lower `lifetime` to {fits} s at most, use fewer or smaller hosts, or raise `max_usd`"
    yield Problem(_MAX, message, help_ if fits >= 60 else "use smaller hosts, or raise `max_usd`")


@rule("SMDP807", "serve.max_usd", *_PRICED)
def limit_can_be_checked(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or serve.max_usd is None or facts.local or facts.price_problems or facts.spec.region == REGION:
        return
    what = f"`max_usd` is {serve.max_usd:,.2f} USD"
    if serve.kind in ("serverless", "batch"):
        message = f"{what}, and the cost of `kind: {serve.kind}` depends on what it is sent"
        yield Problem(_MAX, message, "remove it", remove=True)
    elif serve.lifetime is None:
        yield Problem(_MAX, f"{what}, but without `lifetime` the cost has no end", "add `lifetime`, in seconds")
    elif serving_hourly(facts.spec, facts.prices) is None and serve.instance_type is not None:
        help_ = f"add {serve.instance_type} in {facts.spec.region} to `hosting` of the price table"
        if facts.prices is None:
            help_ = "name a price table with `budget: {prices: FILE}`"
        yield Problem(_MAX, f"{what}, but the price of the hosts is not known", help_)
