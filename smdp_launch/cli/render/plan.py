"""The plan for a person, on standard output, in 80 columns."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smdp_launch.catalog.instances import instance
from smdp_launch.plan.plan import Plan
from smdp_launch.request.names import source_location


def show_plan(plan: Plan) -> None:
    console = Console(highlight=False)
    console.print(Text(plan.job, "bold"), Text(f"from {plan.job_file}"), sep="  ")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, value in _rows(plan):
        table.add_row(name, Text(value))
    console.print(table)


def _rows(plan: Plan) -> list[tuple[str, str]]:
    spec, request = plan.spec, plan.request
    compute = spec.compute
    known = instance(compute.instance_type)
    gpus = f", {known.gpus} x {known.gpu} {known.gpu_memory_gb} GB each" if known is not None else ""
    rows = [
        ("hosts", f"{compute.instance_count} x {compute.instance_type}{gpus}"),
        ("limits", f"{duration(compute.max_run)} of running at most, {compute.volume_gb} GB of storage a host"),
        ("engine", f"{spec.engine}, policy {spec.policy}"),
        ("framework", f"{spec.framework.name} {spec.framework.version}"),
        ("image", request["AlgorithmSpecification"]["TrainingImage"]),
        ("role", spec.role),
        ("region", spec.region),
        ("script", shlex.join([spec.script.entry, *plan.script_arguments])),
        ("source", f"{plan.source.folder}: {count(len(plan.source.files), 'file')}, {size(plan.source.size)}"),
        ("", f"to {source_location(spec.output.s3, plan.job)}"),
    ]
    channels = [f"{name}: {one.s3} ({one.mode})" for name, one in sorted(spec.channels.items())]
    rows += _titled("channels", channels)
    rows.append(("output", spec.output.s3))
    if spec.checkpoint is not None:
        rows.append(("checkpoints", f"{spec.checkpoint.path} kept at {request['CheckpointConfig']['S3Uri']}"))
    rows += rank_rows(plan)
    return [*rows, ("plan", plan.hash)]


def rank_rows(plan: Plan) -> list[tuple[str, str]]:
    """A line a host, with the ranks of its workers; the JSON form has every rank."""
    by_host: dict[str, list[int]] = {}
    for one in plan.ranks:
        by_host.setdefault(one.host, []).append(one.rank)
    spans = {host: f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}" for host, ranks in by_host.items()}
    return _titled("ranks", [f"{host}: {ranks}" for host, ranks in spans.items()])


def _titled(title: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(title if index == 0 else "", line) for index, line in enumerate(lines)]


def duration(seconds: int) -> str:
    """Such as ``1 h 30 min``; exact."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    said: list[str] = []
    for unit, length in units:
        amount, seconds = divmod(seconds, length)
        if amount:
            said.append(f"{amount} {unit}")
    return " ".join(said) or "0 s"


def size(amount: int) -> str:
    value, unit = float(amount), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def count(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
