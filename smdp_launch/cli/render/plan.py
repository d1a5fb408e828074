"""The plan for a person, on standard output, in 80 columns."""

from __future__ import annotations

import shlex

from rich.text import Text

from smdp_launch.catalog.instances import instance
from smdp_launch.cli.render.console import Console
from smdp_launch.cli.render.rows import count, duration, print_rows, short, size, titled
from smdp_launch.jobfile.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.plan.plan import Plan
from smdp_launch.request.names import source_location


def show_plan(plan: Plan) -> None:
    console = Console(highlight=False)
    console.print(Text(plan.job, "bold"), Text(f"from {plan.job_file}"), sep="  ")
    print_rows(console, _rows(plan))


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
        ("source", f"{short(plan.source.folder)}: {count(len(plan.source.files), 'file')}, {size(plan.source.size)}"),
        ("", f"to {source_location(spec.output.s3, plan.job)}"),
    ]
    rows += titled("channels", [f"{name}: {_channel(one)}" for name, one in sorted(spec.channels.items())])
    rows.append(("output", spec.output.s3))
    if spec.checkpoint is not None:
        rows.append(("checkpoints", f"{spec.checkpoint.path} kept at {request['CheckpointConfig']['S3Uri']}"))
    rows += rank_rows(plan)
    return [*rows, ("plan", plan.hash)]


def _channel(channel: S3Channel | FsxChannel | EfsChannel) -> str:
    if isinstance(channel, S3Channel):
        sharded = ", a share for each host" if channel.distribution == "ShardedByS3Key" else ""
        return f"{channel.s3} ({channel.mode}{sharded})"
    name = channel.fsx if isinstance(channel, FsxChannel) else channel.efs
    return f"{name}:{channel.path} ({channel.access})"


def rank_rows(plan: Plan) -> list[tuple[str, str]]:
    """A line a host, with the ranks of its workers; the JSON form has every rank."""
    by_host: dict[str, list[int]] = {}
    for one in plan.ranks:
        by_host.setdefault(one.host, []).append(one.rank)
    spans = {host: f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}" for host, ranks in by_host.items()}
    return titled("ranks", [f"{host}: {ranks}" for host, ranks in spans.items()])
