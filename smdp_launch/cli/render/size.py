"""A sizing for a person."""

from __future__ import annotations

from rich.text import Text

from smdp_launch.catalog.storage import checked
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.plain_text import without_controls
from smdp_launch.sizing.choices import Choice
from smdp_launch.sizing.need import Need
from smdp_launch.sizing.report import verdict


def print_sizing(need: Need, found: list[Choice], prices: str | None) -> None:
    """``prices``: the source of the price table; None without a price."""
    console = Console(highlight=False)
    _print(console, Text(verdict(need, found), "bold"))
    console.print()
    rows = [("need", f"{need.mb_s:.4g} MB/s by {need.hosts} hosts, {need.host_mb_s:.4g} MB/s each ({need.source})")]
    if need.data_gb is not None:
        rows.append(("data", f"{need.data_gb:.4g} GB"))
    rows.append(("rates", f"those of the services' guides, checked {checked()}; --json names the guides"))
    if prices is not None:
        rows.append(("prices", prices))
    print_rows(console, rows)
    console.print()
    columns = [
        Column("storage", [one.name for one in found]),
        Column("carries", [{True: "yes", False: "no", None: "unknown"}[one.carries] for one in found]),
        Column("GiB", [str(one.capacity_gib or "") for one in found]),
        Column("MB/s", [f"{one.mb_s:.0f}" if one.mb_s is not None else "" for one in found]),
        Column("burst", [f"{one.burst_mb_s:.0f}" if one.burst_mb_s is not None else "" for one in found], drop=1),
    ]
    if any(one.monthly_usd is not None for one in found):
        usd = [f"{one.monthly_usd:,.2f}" if one.monthly_usd is not None else "" for one in found]
        columns.append(Column("USD/month", usd))
    print_table(console, columns)
    console.print()
    print_rows(console, [row for one in _distinct(found) for row in _limits(one)])


def _distinct(found: list[Choice]) -> list[Choice]:
    """One for all kinds of FSx for Lustre with the same texts, and all others."""
    shown: dict[str, Choice] = {}
    for one in found:
        shown.setdefault("FSx for Lustre" if one.capacity_gib is not None else one.name, one)
    return list(shown.values())


def _limits(one: Choice) -> list[tuple[str, str]]:
    name, limit = (one.name, one.limit) if one.capacity_gib is None else ("FSx for Lustre", "its MB/s for each TiB")
    rows = [(name, f"limit: {limit}"), ("", f"first batch {one.first_batch}")]
    if one.assumption is not None:
        rows.append(("", f"assumed: {one.assumption}"))
    return rows


def _print(console: Console, text: Text) -> None:
    plain = Text(without_controls(text.plain), text.style)
    for line in wrapped(plain, console.width) if console.is_terminal else [plain]:
        console.print(line, soft_wrap=True)
