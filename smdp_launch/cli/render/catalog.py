"""The catalogue's lists: columns for a person, one document for a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.text import Text

from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.listing import Listing, Row
from smdp_launch.cli.render.next import say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.units import count

_GAP = 2
_FROM_MEMORY = "~"


def show_json(listing: Listing) -> None:
    click.echo(json.dumps(listing.to_json(), indent=2, ensure_ascii=False))


def show_instances(listing: Listing) -> None:
    with_region = any("offered" in row for row in listing.rows)
    last = (
        ("here", lambda row: {True: "yes", False: "no?", None: "?"}[row["offered"]]) if with_region else ("NVMe", _nvme)
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("type", lambda row: row["name"]),
        ("GPUs x GB", lambda row: f"{row['gpus']} {row['gpu']} x {_cell(row, 'gpu_memory_gb')}"),
        ("GiB", lambda row: _cell(row, "memory_gib")),
        ("Gbit/s", lambda row: _cell(row, "network_gbit")),
        ("EFA", lambda row: _cell(row, "efa_interfaces")),
        ("CUDA", lambda row: _cell(row, "cuda_min")),
        last,
        ("policy", lambda row: row["smdistributed"] or "native"),
    ]
    _show(listing, columns)
    notes = [
        "GB of each GPU, GiB of memory, NVMe in TB, the first CUDA for the GPU",
        "policy native: only with engine native and policy extended",
        f"{_FROM_MEMORY} general knowledge, in no document that was read",
    ]
    if with_region:
        notes.append("here: no? by an uncertain source (--json names it); ? where no document tells")
    notes += [f"left out: {one}" for one in listing.left_out]
    _say(*notes)
    say_next("smdp-launch catalog frameworks")


def show_frameworks(listing: Listing) -> None:
    _show(
        listing,
        [
            ("framework", _framework),
            ("Python", lambda row: row["python"] or "-"),
            ("CUDA", lambda row: row["cuda"] or "-"),
            ("SMDDP", _smddp),
            ("native", lambda row: "yes" if row["native"] else "-"),
            ("policy", lambda row: row["policy"]),
        ],
    )
    _say("SMDDP: AWS's library in AWS's image", "native: a build of ours, in an image of yours")
    say_next("smdp-launch catalog images --region us-east-1")


def show_images(listing: Listing) -> None:
    """A URI is never broken, so that it can be copied; in a terminal what it holds stands below it."""
    console = Console(highlight=False)
    for row in listing.rows:
        held = f"{_framework(row)}, Python {row['python']}, CUDA {row['cuda']}, SMDDP {_smddp(row)}"
        if console.is_terminal:
            console.print(Text(row["uri"]), Text(f"  {held}", "cyan"), sep="\n", soft_wrap=True)
        else:
            console.print(Text(f"{row['uri']}  {held}"), soft_wrap=True)
    _say(f"{count(len(listing.rows), 'image')}, checked {listing.checked}")
    say_next("write the URI as `image:` into job.yaml, then: smdp-launch validate")


def _show(listing: Listing, columns: Sequence[tuple[str, Callable[[Row], str]]]) -> None:
    cells = [[told(row) for _, told in columns] for row in listing.rows]
    widths = [max(len(name), *(len(row[index]) for row in cells), 0) for index, (name, _) in enumerate(columns)]
    console = Console(highlight=False)
    for style, line in [("cyan", [name for name, _ in columns]), *(("", row) for row in cells)]:
        padded = (cell.ljust(width + _GAP) for cell, width in zip(line, widths, strict=True))
        console.print(Text("".join(padded).rstrip(), style), soft_wrap=True)
    _say(f"{count(len(cells), 'row')}, checked {listing.checked}")


def _cell(row: Row, field: str) -> str:
    return f"{_FROM_MEMORY if field in row['from_memory'] else ''}{row[field]}"


def _nvme(row: Row) -> str:
    amount = row["local_nvme_gb"]
    if not amount:
        return "?" if amount is None else "0"
    return f"{_FROM_MEMORY if 'local_nvme_gb' in row['from_memory'] else ''}{amount / 1000:.1f}"


def _framework(row: Row) -> str:
    name = f"{TITLES[row['framework']]} {row['version']}"
    return f"transformers {row['transformers']} on {name}" if row["transformers"] else name


def _smddp(row: Row) -> str:
    held: Any = row["smddp"]
    return "yes" if held is True else held or "-"


def _say(*lines: str) -> None:
    console = Console(stderr=True, highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
