"""The lists of the catalogue, for a person and for a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.listing import Listing, Row
from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.units import count

#: Marks a value without a source.
_UNSOURCED = "~"


def print_json(listing: Listing) -> None:
    print_document(listing.to_json())


def print_instances(listing: Listing) -> None:
    with_region = any("offered" in row for row in listing.rows)
    last = (
        ("here", lambda row: {True: "yes", False: "no?", None: "?"}[row["offered"]]) if with_region else ("NVMe", _nvme)
    )
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("type", lambda row: row["name"]),
        ("GPUs x GB", _gpus),
        ("GiB", lambda row: _cell(row, "memory_gib")),
        ("Gbit/s", lambda row: _cell(row, "network_gbit")),
        ("EFA", lambda row: _cell(row, "efa_interfaces")),
        ("CUDA", lambda row: _cell(row, "cuda_min")),
        last,
        ("policy", lambda row: row["smdistributed"] or "native"),
    ]
    _print_listing(listing, columns)
    notes = [
        "GPU memory in GB, host memory in GiB, NVMe in TB, the oldest CUDA version for the GPU",
        "policy native: not with AWS's library; with engine nccl, or engine native and policy extended",
        f"{_UNSOURCED} the value has no documented source",
    ]
    if with_region:
        notes.append("here: whether the region offers the type")
        notes.append("no? by an uncertain source (see --json), ? without a documented source")
    notes += [f"omitted: {one}" for one in listing.left_out]
    _print_notes(*notes)
    print_next("smdp-launch catalog frameworks")


def print_frameworks(listing: Listing) -> None:
    _print_listing(
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
    _print_notes("SMDDP: version of AWS's library in AWS's image", "native: engine native, in an image that you build")
    print_next("smdp-launch catalog images --region us-east-1")


def print_images(listing: Listing) -> None:
    """Print each URI on one line for copying; a terminal shows its contents on the next line."""
    console = Console(highlight=False)
    for row in listing.rows:
        contents = f"{_framework(row)}, Python {row['python']}, CUDA {row['cuda']}, SMDDP {_smddp(row)}"
        if console.is_terminal:
            console.print(Text(row["uri"]), Text(f"  {contents}", "cyan"), sep="\n", soft_wrap=True)
        else:
            console.print(Text(f"{row['uri']}  {contents}"), soft_wrap=True)
    _print_notes(f"{count(len(listing.rows), 'image')}, checked {listing.checked}")
    print_next("write the URI as `image:` into job.yaml, then: smdp-launch validate")


def print_prices(listing: Listing) -> None:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("type", lambda row: row["name"]),
        ("training (USD/h)", lambda row: _usd(row["training_usd"])),
        ("endpoint (USD/h)", lambda row: _usd(row["hosting_usd"])),
    ]
    _print_listing(listing, columns)
    _print_notes(f"source: {listing.source}", "USD for one instance and one hour, without a discount of your contract")
    print_next("smdp-launch cost")


def _usd(price: float | None) -> str:
    return "-" if price is None else f"{price:g}"


def _print_listing(listing: Listing, columns: Sequence[tuple[str, Callable[[Row], str]]]) -> None:
    table = [Column(title, [cell(row) for row in listing.rows]) for title, cell in columns]
    print_table(Console(highlight=False), table)
    _print_notes(f"{count(len(listing.rows), 'row')}, checked {listing.checked}")


def _gpus(row: Row) -> str:
    name = row["gpu"].replace("RTX PRO", "RTX")  # a line has 80 columns
    return f"{row['gpus']} {name} x {_cell(row, 'gpu_memory_gb')}"


def _cell(row: Row, field: str) -> str:
    if row[field] is None:
        return "?"
    return f"{_UNSOURCED if field in row['from_memory'] else ''}{row[field]}"


def _nvme(row: Row) -> str:
    amount = row["local_nvme_gb"]
    if not amount:
        return "?" if amount is None else "0"
    return f"{_UNSOURCED if 'local_nvme_gb' in row['from_memory'] else ''}{amount / 1000:.1f}"


def _framework(row: Row) -> str:
    name = f"{TITLES[row['framework']]} {row['version']}"
    return f"transformers {row['transformers']} on {name}" if row["transformers"] else name


def _smddp(row: Row) -> str:
    version: Any = row["smddp"]
    return "yes" if version is True else version or "-"


def _print_notes(*lines: str) -> None:
    console = Console(stderr=True, highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
