"""The plan in rows of words: what the terminal and a notebook show of it."""

from __future__ import annotations

import shlex

from smdp_launch.catalog.instances import instance
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.planning.consequences import ImageFacts
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.rehearsed import rehearsed_rows
from smdp_launch.request.names import source_location
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.units import count, duration, short, size, titled

Row = tuple[str, str]


def summary(plan: Plan) -> list[Row]:
    """What a person wants to know before a launch, a name and a value each; a row without a name goes on."""
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
        ("", _image(plan.image)),
        ("role", spec.role),
        ("region", spec.region),
        ("script", shlex.join([spec.script.entry, *plan.script_arguments])),
        ("source", f"{short(plan.source.folder)}: {count(len(plan.source.files), 'file')}, {size(plan.source.size)}"),
        *[("", f"without {one}/, which the script writes when it is run by hand") for one in plan.source.outputs],
        ("", str(source_location(spec.output.s3, plan.job))),
    ]
    rows += titled("channels", [f"{name}: {_channel(one)}" for name, one in sorted(spec.channels.items())])
    rows.append(("output", spec.output.s3))
    if spec.checkpoint is not None:
        rows.append(("checkpoints", f"{spec.checkpoint.path} kept at {request['CheckpointConfig']['S3Uri']}"))
    rows += rank_rows(plan)
    rows += _batch_rows(plan)
    rows += [("cost", cost(plan)), ("ends", _ends(plan))]
    rows += titled("leaves", list(plan.side_effects))
    rows += titled("rehearsed", rehearsed_rows(plan.rehearsals))
    rows += titled("notes", [one.message for one in plan.diagnostics if one.severity is Severity.NOTE])
    if plan.placeholders and plan.local is None:
        rows.append(("to fill in", to_fill_in(plan.placeholders)))
    return [*rows, ("plan", plan.hash)]


def _batch_rows(plan: Plan) -> list[Row]:
    advice = plan.batch
    if advice is None:
        return []
    rows = []
    if advice.global_size is not None:
        each = f", {advice.per_worker} on each GPU" if advice.per_worker is not None else ""
        rows.append(("batch", f"{advice.global_size} in each step{each}"))
    if advice.formula is not None:
        given = f"; the job gives {advice.learning_rate:g}" if advice.learning_rate is not None else ""
        rows.append(("learning rate", f"{advice.formula}{given}"))
    if advice.warmup_steps is not None:
        rows.append(("warm-up", count(advice.warmup_steps, "step")))
    return rows


def cost(plan: Plan) -> str:
    """The bounds of what is billed."""
    bill = plan.billing
    hours = f"{bill.instance_hours:.2f} instance-hours at most"
    if bill.warm_instance_hours:
        hours += f", and {bill.warm_instance_hours:.2f} of a warm pool"
    if bill.usd is not None:
        hours += f": {bill.usd:,.2f} USD at {bill.price:g} an hour ({bill.price_source})"
    if bill.ceiling_usd is not None:
        hours += f"; {bill.ceiling_usd:,.2f} USD are allowed"
    return hours


def _ends(plan: Plan) -> str:
    latest = plan.billing.latest_end
    if latest is None:
        return "the wait for capacity has no limit: compute.max_pending sets one"
    return f"{latest:%Y-%m-%d %H:%M} UTC at the latest, if it were launched now"


def _image(facts: ImageFacts) -> str:
    held = [f"CUDA {facts.cuda}"] if facts.cuda is not None else ["CUDA unknown until it is looked into"]
    if facts.python is not None:
        held.append(f"Python {facts.python}")
    if facts.compute_capability is not None:
        held.append(f"for GPUs of compute capability {facts.compute_capability}")
    return f"{facts.source}: {', '.join(held)}"


def _channel(channel: S3Channel | FsxChannel | EfsChannel) -> str:
    if isinstance(channel, S3Channel):
        sharded = ", a share for each host" if channel.distribution == "ShardedByS3Key" else ""
        return f"{channel.s3} ({channel.mode}{sharded})"
    name = channel.fsx if isinstance(channel, FsxChannel) else channel.efs
    return f"{name}:{channel.path} ({channel.access})"


def rank_rows(plan: Plan) -> list[Row]:
    """A line a host, with the ranks of its workers; the JSON form has every rank."""
    by_host: dict[str, list[int]] = {}
    for one in plan.ranks:
        by_host.setdefault(one.host, []).append(one.rank)
    spans = {host: f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}" for host, ranks in by_host.items()}
    return titled("ranks", [f"{host}: {ranks}" for host, ranks in spans.items()])
