"""A resumed job, before it is launched."""

from __future__ import annotations

from datetime import timezone

from rich.text import Text

from smdp_launch.cli.render.job.status import place
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.checkpoints.listing import Checkpoints
from smdp_launch.jobs.records.history import find_launch
from smdp_launch.jobs.resume import Resumption
from smdp_launch.units import count, duration


def print_resumption(prepared: Resumption, where: str) -> None:
    console, old = Console(highlight=False, soft_wrap=True), prepared.old
    console.print(Text(prepared.job, "bold"), f"from {old.job}, which {prepared.ended.summary}", sep="  ")
    rows = [("where", f"{place(where)}, {old.hosts_text}")]
    if old.max_run is not None:
        rows.append(("limits", f"{duration(old.max_run)} of run time"))
    launch = find_launch(old.job)
    if launch is not None and launch.most_usd is not None:
        rows.append(("cost", f"at most {launch.most_usd:.2f} USD, as for the old job"))
    if prepared.checkpoints is None:
        rows.append(("checkpoints", "none was saved: the training starts from the beginning"))
    else:
        rows += [("checkpoints", prepared.checkpoints.where), ("", _files(prepared.checkpoints))]
    print_rows(console, rows)


def _files(listing: Checkpoints) -> str:
    return (
        f"{count(listing.files, 'file')}, the newest of {listing.newest.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    )
