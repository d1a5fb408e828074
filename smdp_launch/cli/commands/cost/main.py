from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.jobs.spending.groups import By
    from smdp_launch.jobs.spending.ledger import Open


@click.command("cost")
@click.option(
    "--by",
    metavar="WHAT",
    type=click.Choice(("job", "tag", "week")),
    default="job",
    show_default=True,
    help="Sum the costs by job, tag or week (ISO weeks of the launch, UTC).",
)
@click.option("--tag", metavar="KEY", help="With --by tag: count only the values of this tag.")
@options.since("Count only what was launched since then: 10m, 2h, 3d, 2026-11-21, 2026-11-21T14:30.")
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Table of prices to use first (docs/reference/catalog.md).",
)
@click.option("--offline", is_flag=True, help="Use only the records of this folder, and call no service.")
@click.option("--all-folders", is_flag=True, help="Count all folders from which you launched jobs on this machine.")
@options.json_document
def command(
    by: By,
    tag: str | None,
    since: datetime | None,
    prices: Path | None,
    offline: bool,
    all_folders: bool,
    as_json: bool,
) -> None:
    """Show what was spent on the jobs, sweeps, endpoints and warm pools that were launched from this folder.

    The command uses the seconds that AWS bills, and the prices at the launch or the prices that `catalog prices
    --update` has fetched. For each endpoint and warm pool that costs money now, it shows the command that deletes the
    endpoint or ends the warm pool. Storage, data transfer and serverless requests are not counted.
    """
    from datetime import timezone

    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.cli.render.cost import cost_json, print_costs
    from smdp_launch.jobs.records.current_folder import require_current_folder
    from smdp_launch.jobs.records.folders import known_folders
    from smdp_launch.jobs.spending.groups import grouped
    from smdp_launch.jobs.spending.ledger import Ledger, Prices

    if tag is not None and by != "tag":
        raise click.UsageError("--tag needs --by tag")
    require_current_folder()
    table = Prices(read_prices(prices) if prices is not None else None)
    current, problems = ({}, []) if offline else _current()
    now = datetime.now(timezone.utc)
    ledgers = [Ledger(table, now, current=current)]
    if all_folders:
        ledgers += [Ledger(table, now, one) for one in known_folders() if one != Path.cwd()]
    rows = [one for ledger in ledgers for one in ledger.rows if since is None or one.began >= since]
    rows.sort(key=lambda one: one.began, reverse=True)
    groups = grouped(rows, by, tag)
    if as_json:
        print_document(cost_json(rows, groups, by, problems))
    else:
        print_costs(rows, groups, by, problems)


def _current() -> tuple[dict[str, Open], list[str]]:
    """What the service says of jobs, warm pools and endpoints that are not finished."""
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.open_costs import refresh
    from smdp_launch.jobs.records.endpoints import served
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.spending.ledger import Open
    from smdp_launch.serving.listing import endpoints_of_folder

    current, problems = refresh(print_retry)
    if any(one.where != LOCAL for one in served()):
        for one in endpoints_of_folder(print_retry):
            if one.problem is not None:
                problems.append(one.problem)
            elif one.status is not None and one.where != LOCAL:
                current[one.name] = Open(one.status, None)
    return current, list(dict.fromkeys(problems))
