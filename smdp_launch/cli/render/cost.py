"""Costs, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from smdp_launch.catalog.prices import command_for_prices
from smdp_launch.cli.render.next_step import print_next, print_note
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.spending.groups import By, Group, week_of
from smdp_launch.jobs.spending.ledger import Spent
from smdp_launch.systems import command_line
from smdp_launch.units import count, duration

#: Version of ``cost --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


def print_costs(rows: Sequence[Spent], groups: Sequence[Group], by: By, problems: Sequence[str]) -> None:
    """Args:
    problems: of services that could not be asked.
    """
    console = Console(highlight=False)
    if not rows:
        click.echo("nothing was launched on AWS from this folder in this time; local runs cost nothing")
    else:
        print_table(console, _job_columns(rows) if by == "job" else _group_columns(groups, by))
        console.print(Text(_total(rows), "bold"), soft_wrap=True)
    for problem in problems:
        print_note(f"not up to date: {problem}")
    for source in sorted({str(one.source) for one in rows if one.usd and one.source is not None}):
        print_note(f"prices: {source}")
    for line in _open_lines(rows):
        click.echo(line, err=True)
    _print_next(rows, by)


def _job_columns(rows: Sequence[Spent]) -> list[Column]:
    columns = [
        Column("NAME", [one.name for one in rows]),
        Column("KIND", [one.kind for one in rows], drop=2),
        Column("STATUS", [one.status for one in rows], drop=3),
        Column("LAUNCHED (UTC)", [f"{one.began:%Y-%m-%d %H:%M}" for one in rows], drop=4),
        Column("INSTANCES", [_instances(one) for one in rows], drop=1),
        Column("BILLED", ["-" if one.seconds is None else duration(one.seconds) for one in rows], drop=5),
        Column("HOURS", [_number(one.instance_hours) for one in rows]),
        Column("COST (USD)", [_cost(one) for one in rows]),
        Column("SAVED", ["-" if one.saved_share is None else f"{one.saved_share:.0%}" for one in rows], drop=6),
        Column("SAVED (USD)", [_number(one.saved_usd) for one in rows], drop=7),
    ]
    known = {"SAVED": any(one.saved_share for one in rows), "SAVED (USD)": any(one.saved_usd for one in rows)}
    return [one for one in columns if known.get(one.title, True)]


def _group_columns(groups: Sequence[Group], by: By) -> list[Column]:
    saved = [one.saved_usd for one in groups]
    columns = [
        Column("TAG" if by == "tag" else "WEEK", [one.name for one in groups]),
        Column("COSTS", [str(len(one.rows)) for one in groups], drop=1),
        Column("HOURS", [_number(one.instance_hours) for one in groups]),
        Column("COST (USD)", [_number(one.usd) for one in groups]),
        Column("UNKNOWN", [str(one.unknown) for one in groups], drop=2),
        Column("SAVED (USD)", [_number(one) if one else "-" for one in saved], drop=3),
    ]
    return [one for one in columns if one.title != "SAVED (USD)" or any(saved)]


def _instances(row: Spent) -> str:
    if row.hosts is None:
        return "serverless"
    if row.types:
        return ", ".join(f"{hosts} x {name}" for name, hosts in row.types.items())
    return f"{row.hosts} x {row.instance_type or 'unknown type'}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _cost(row: Spent) -> str:
    if row.usd is None:
        return f"at most {row.most_usd:,.2f}" if row.most_usd is not None else "-"
    return f"{row.usd:,.2f}{' so far' if row.is_open else ''}"


def _total(rows: Sequence[Spent]) -> str:
    """The sums. The share that spot capacity saved is that of the spot jobs with a price, or of all if none has one."""
    everything = Group("total", tuple(rows))
    text = f"total: {everything.instance_hours:,.2f} instance-hours, {_number(everything.usd)} USD"
    if everything.unknown:
        text += f", and {count(everything.unknown, 'cost')} that {'is' if everything.unknown == 1 else 'are'} not known"
    if everything.saved_usd:
        spot = [one for one in rows if one.saved_usd]
        whole = sum((one.usd or 0.0) + (one.saved_usd or 0.0) for one in spot)
        text += f"; spot capacity saved {everything.saved_usd:,.2f} USD ({everything.saved_usd / whole:.0%})"
    elif any(one.saved_seconds for one in rows):
        hosts = [(one, one.hosts or 1) for one in rows if one.saved_seconds]
        saved = sum(count * one.saved_seconds for one, count in hosts)
        trained = sum(count * (one.training_seconds or 0) for one, count in hosts)
        text += f"; spot capacity saved {saved / 3600:,.2f} instance-hours ({saved / trained:.0%})"
    return text


def _open_lines(rows: Sequence[Spent]) -> list[str]:
    """What costs money without working: warm pools that wait for a job, and endpoints."""
    lines = []
    for one in rows:
        if not one.is_open or one.kind not in ("endpoint", "warm pool"):
            continue
        hours = "" if one.instance_hours is None else f", {one.instance_hours:,.2f} instance-hours"
        money = "" if one.usd is None else f", {one.usd:,.2f} USD"
        rate = "" if one.price is None or not one.hosts else f" ({one.price * one.hosts * 24:,.2f} USD a day)"
        if one.kind == "endpoint":
            since = duration((one.seconds or 0) // 60 * 60) if (one.seconds or 0) >= 60 else "less than 1 min"
            end = command_line(["smdp-launch", "undeploy", one.name])
            lines.append(f"running: endpoint {one.name} since {since}{hours}{money}{rate}; end it: {end}")
        elif one.status == "Available":
            end = command_line(
                [
                    *("aws", "sagemaker", "update-training-job", "--region", one.where),
                    *("--training-job-name", one.name, "--resource-config", "KeepAlivePeriodInSeconds=0"),
                ]
            )
            lines.append(f"idle: the warm pool of {one.name}{hours}{money}{rate}; end it: {end}")
    return lines


def _print_next(rows: Sequence[Spent], by: By) -> None:
    """The command that finds missing prices, else another view."""
    regions = sorted({one.where for one in rows if _lacks_price(one)})
    if not regions:
        other = "smdp-launch cost --by week" if by == "job" else "smdp-launch cost"
        print_next(other if rows else "smdp-launch launch")
        return
    for region in regions:
        types = sorted(
            {
                kind
                for one in rows
                if one.where == region and _lacks_price(one)
                for kind in _kinds(one) or ["unknown type"]
            }
        )
        print_note(f"no price is known of {', '.join(types)} in {region}")
    print_next(command_for_prices(regions[0]))


def _kinds(row: Spent) -> list[str]:
    return list(row.types) or ([row.instance_type] if row.instance_type is not None else [])


def _lacks_price(row: Spent) -> bool:
    return row.price is None and bool(row.instance_hours)


def cost_json(rows: Sequence[Spent], groups: Sequence[Group], by: By, problems: Sequence[str]) -> dict[str, Any]:
    everything = Group("total", tuple(rows))
    return {
        "cost": _VERSION,
        "by": by,
        "currency": "USD",
        "costs": [_row_json(one) for one in rows],
        "groups": [_group_json(one) for one in groups],
        "total": _group_json(everything),
        "unpriced": [
            {"region": region, "instance_type": kind, "command": command_for_prices(region)}
            for region, kind in sorted(
                {(one.where, kind) for one in rows if _lacks_price(one) for kind in _kinds(one) or [""]}
            )
        ],
        "problems": list(problems),
    }


def _row_json(row: Spent) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "where": row.where,
        "time": row.began.isoformat(timespec="seconds"),
        "week": week_of(row.began),
        "tags": dict(row.tags),
        "status": row.status,
        "open": row.is_open,
        "hosts": row.hosts,
        "instance_type": row.instance_type,
        **({"types": dict(row.types)} if row.types else {}),
        "billable_seconds": row.seconds,
        "training_seconds": row.training_seconds,
        "instance_hours": row.instance_hours,
        "hourly_usd": row.price,
        "price_source": row.source,
        "usd": row.usd,
        "saved_usd": row.saved_usd,
        "most_usd": row.most_usd,
    }


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "costs": len(group.rows),
        "instance_hours": group.instance_hours,
        "usd": group.usd,
        "saved_usd": group.saved_usd,
        "unknown": group.unknown,
    }
