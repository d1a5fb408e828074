"""Deployments for a person, and for a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from smdp_launch.catalog.hosting.quotas import transform_limits
from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.preflight.check import Result
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.serving.listing import ListedEndpoint
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.undeploy import Undeployed
from smdp_launch.units import duration, listed, titled

_LIST_VERSION = 1
_UNDEPLOY_VERSION = 1
_STYLES = {"InService": "green", "Completed": "green", "Failed": "red", "Deleted": "dim"}


def print_serving_plan(plan: ServingPlan, quota: Result | None = None) -> None:
    """The plan in rows.

    Args:
        quota: the check of the account's quota; None if there was none.
    """
    console = Console(highlight=False)
    console.print(Text(plan.name, "bold"), Text(f"from {plan.job_file}"), sep="  ")
    rows = plan_rows(plan)
    if quota is not None:
        text = quota.note if quota.checked else f"not checked: {quota.note}"
        rows.append(("quota", "; ".join(one.message for one in quota.problems) or text))
    print_rows(console, rows)


def plan_rows(plan: ServingPlan) -> list[tuple[str, str]]:
    container = plan.deployment.model["PrimaryContainer"]
    rows = [("serves", _hosts(plan)), ("image", container["Image"])]
    if plan.is_local:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        rows.append(("", f"not used locally: Python {python} and the locally installed packages serve the model"))
    rows.append(("model", str(plan.trained)))
    if plan.packed is not None:
        rows.append(("", f"packed with {plan.serve.entry} and its folder to {plan.packed}"))
    if plan.serve.kind == "batch":
        output = plan.requests["CreateTransformJob"]["TransformOutput"]["S3OutputPath"]
        rows += [("input", str(plan.serve.input)), ("", _requests_of(plan)), ("output", output)]
    rows.append(("cost", cost_text(plan)))
    rows += titled("lifetime", _lifetime(plan))
    rows.append(("requests", ", ".join(plan.requests)))
    return [*rows, ("plan", plan.deployment.hash)]


def _hosts(plan: ServingPlan) -> str:
    serve = plan.serve
    if serve.kind == "serverless":
        config = plan.requests["CreateEndpointConfig"]["ProductionVariants"][0]["ServerlessConfig"]
        return f"serverless: {config['MemorySizeInMB']} MB, {config['MaxConcurrency']} requests at a time"
    return f"{serve.kind}: {serve.instance_count} x {serve.instance_type}"


def _requests_of(plan: ServingPlan) -> str:
    """How a batch transform sends its input."""
    serve, limits = plan.serve, transform_limits()
    megabytes = limits.default_payload_mb if serve.max_payload_mb is None else serve.max_payload_mb
    size = f"of {megabytes} MB at most" if megabytes else "of any size, in HTTP chunks"
    if serve.split in (None, "None"):
        what = "one request for each object"
    elif serve.batch_strategy == "SingleRecord":
        what = f"one request for each record ({serve.split})"
    else:
        what = f"as many records ({serve.split}) in a request as fit"
    text = f"{what}, {size}"
    return text if serve.concurrency is None else f"{text}, {serve.concurrency} at a time on each host"


def cost_text(plan: ServingPlan) -> str:
    """The cost per hour and per day, or why it is not known."""
    if plan.is_local:
        return "not billed: it runs on this machine"
    if plan.serve.kind == "serverless":
        return "billed for each request, not for time"
    if plan.hourly_usd is None:
        what = f"{plan.serve.instance_type} in {plan.spec.region}"
        return f"not known: no hosting price of {what} in the table of `budget.prices`"
    text = f"{plan.hourly_usd:,.2f} USD an hour"
    if plan.serve.kind == "batch":
        return f"{text} until the transform ends"
    text += f", {plan.daily_usd:,.2f} USD a day"
    if plan.most_usd is not None:
        text += f", {plan.most_usd:,.2f} USD until the end of its lifetime"
    return text if plan.prices is None else f"{text} ({plan.prices.source}, {plan.prices.date})"


def _lifetime(plan: ServingPlan) -> list[str]:
    if plan.serve.kind == "batch":
        return ["ends by itself, and its hosts with it"]
    if plan.expires is None:
        return ["no end: it is billed until `smdp-launch undeploy` deletes it" if not plan.is_local else "no end"]
    until = f"{duration(plan.serve.lifetime or 0)}, until {plan.expires:%Y-%m-%d %H:%M} UTC"
    if plan.deletes_itself:
        return [until, "AWS deletes the endpoint then: EventBridge Scheduler with serve.expiry_role"]
    only = "AWS does not end it then: run `smdp-launch endpoints --expire` after that, for example with cron"
    if plan.is_local:
        return [until, "`smdp-launch endpoints --expire` deletes it after that"]
    return [until, f"{only}, or set serve.expiry_role"]


def print_requests(requests: Mapping[str, Mapping[str, Any]]) -> None:
    """The exact requests, in the order in which they are sent."""
    for operation, request in requests.items():
        click.echo(f"\n{operation}")
        click.echo(json.dumps(request, indent=2))


def deployed_json(plan: ServingPlan, status: str | None) -> dict[str, Any]:
    """Args:
    status: None for a plan that was not sent.
    """
    return plan.to_json() | {"status": status}


def print_endpoints(endpoints: Sequence[ListedEndpoint], region: str | None) -> None:
    if not endpoints:
        where = f"with the tags of smdp-launch in {region}" if region is not None else "deployed from this folder"
        click.echo(f"there is no endpoint {where}")
        print_next("smdp-launch deploy")
        return
    statuses = [one.status or "Unknown" for one in endpoints]
    columns = [
        Column("NAME", [one.name for one in endpoints]),
        Column("STATUS", statuses, [_STYLES.get(one, "") for one in statuses]),
        Column("WHERE", [one.where for one in endpoints]),
        Column("AGE", [duration(one.age_s // 60 * 60) if one.age_s >= 60 else "<1 min" for one in endpoints], drop=3),
        Column("COST (USD)", [_cost(one) for one in endpoints], drop=2),
        Column("TIME LEFT", [_left(one) for one in endpoints], drop=1),
    ]
    print_table(Console(highlight=False), columns)
    for problem in dict.fromkeys(one.problem for one in endpoints if one.problem is not None):
        click.echo(f"unknown: {problem}", err=True)
    gone = [one.name for one in endpoints if one.status == "Deleted"]
    if gone:
        click.echo(f"note: {listed(gone)}: `smdp-launch undeploy NAME` deletes the model and the rest", err=True)
    expired = [one.name for one in endpoints if one.is_expired]
    if expired:
        verb = (
            "is past its lifetime and still exists" if len(expired) == 1 else "are past their lifetime and still exist"
        )
        click.echo(f"warning: {listed(expired)} {verb}", err=True)
        print_next("smdp-launch endpoints --expire" + (f" --region {region}" if region is not None else ""))


def _cost(one: ListedEndpoint) -> str:
    if one.where == LOCAL:
        return "not billed"
    return f"{one.usd:.2f}" if one.usd is not None else "-"


def _left(one: ListedEndpoint) -> str:
    if one.known is not None and one.known.kind == "batch":
        return "ends by itself"
    if one.left_s is None:
        return "no end"
    return duration(max(60, one.left_s // 60 * 60)) if one.left_s > 0 else "over"


def endpoints_json(
    endpoints: Sequence[ListedEndpoint], undeployed: Sequence[Undeployed], failed: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "endpoints": _LIST_VERSION,
        "list": [
            {
                "endpoint": one.name,
                "where": one.where,
                "kind": one.known.kind if one.known is not None else None,
                "status": one.status,
                "created": one.created.isoformat(timespec="seconds"),
                "age_s": one.age_s,
                "hourly_usd": one.hourly_usd,
                "usd": one.usd,
                "expires": one.expires.isoformat(timespec="seconds") if one.expires is not None else None,
                "left_s": one.left_s,
                "expired": one.is_expired,
            }
            for one in endpoints
        ],
        "deleted": [one.endpoint for one in undeployed if not one.left],
        "failed": dict(failed),
    }


def print_undeployed(result: Undeployed) -> None:
    """What was deleted, what did not exist, and what is left."""
    console = Console(highlight=False)
    if result.left:
        state = "is partly deleted"
    elif result.deleted:
        state = "is deleted"
    else:
        state = "did not exist any more: nothing was deleted" if not result.kept else "nothing was deleted"
    console.print(Text(result.endpoint, "bold"), Text(state), sep="  ")
    rows = [
        *titled("deleted", result.deleted),
        *titled("not there", result.missing),
        *titled("not ours, kept", result.kept),
        *titled("left", [f"{title}: {reason}" for title, reason in result.left.items()]),
    ]
    print_rows(console, rows)


def undeployed_json(result: Undeployed) -> dict[str, Any]:
    return {
        "undeploy": _UNDEPLOY_VERSION,
        "endpoint": result.endpoint,
        "deleted": result.deleted,
        "missing": result.missing,
        "left": result.left,
        "kept": result.kept,
    }
