"""The plan as rows of text for the terminal and notebooks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from smdp_launch.catalog.engines import WITH_POLICY
from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.catalog.prices import PriceTable
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.consequences import ImageFacts
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.sweep_rows import sweep_rows
from smdp_launch.request.batch import LEARNING_RATE_NAMES, on_cpus, passes_learning_rate
from smdp_launch.request.build import tensorboard_location
from smdp_launch.request.cost import pending_is_limited, serving_hourly
from smdp_launch.request.groups import groups as instance_groups
from smdp_launch.request.groups import host_count
from smdp_launch.request.names import source_location
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.sizing.file_system import declared_mb_s
from smdp_launch.units import count, duration, listed, short, size, titled

Row = tuple[str, str]


def summary(plan: Plan) -> list[Row]:
    """The rows to read before a launch, each a name and a value. A row without a name continues the one above."""
    spec, request = plan.spec, plan.request
    compute = spec.compute
    known = instance(compute.instance_type)
    gpus = f", {known.gpus} x {known.gpu} {known.gpu_memory_gb} GB each" if known is not None else ""
    groups = instance_groups(spec)
    rows = [
        ("hosts", f"{compute.instance_count} x {compute.instance_type}{gpus}{f', {groups[0].name}' if groups else ''}"),
        *[("", f"{one.instance_count} x {one.instance_type}, {one.name}: not workers") for one in groups[1:]],
        (
            "limits",
            f"at most {duration(compute.max_run)} of run time, {_storage(known, compute.volume_gb)} on each host",
        ),
        ("engine", f"{spec.engine}, policy {spec.policy}" if spec.engine in WITH_POLICY else _torchrun(plan)),
        ("framework", f"{spec.framework.name} {spec.framework.version}"),
        ("image", request["AlgorithmSpecification"]["TrainingImage"]),
        ("", _image(plan.image)),
        ("role", spec.role),
        ("region", spec.region),
        ("script", shlex.join([spec.script.entry, *plan.script_arguments])),
        ("source", f"{short(plan.source.folder)}: {count(len(plan.source.files), 'file')}, {size(plan.source.size)}"),
        *[("", f"without {one}/, which the script writes if it runs outside a job") for one in plan.source.outputs],
        ("", str(source_location(spec.output.s3, plan.job))),
    ]
    rows += titled("channels", [f"{name}: {_channel(one)}" for name, one in sorted(spec.channels.items())])
    rows.append(("output", spec.output.s3))
    if spec.checkpoint is not None:
        rows.append(("checkpoints", f"{spec.checkpoint.path} copied to {request['CheckpointConfig']['S3Uri']}"))
        if spec.checkpoint.shared:
            rows += [
                ("", "shared: the job continues from the checkpoints there, which other jobs may have saved"),
                ("", "a second job there at the same time: both overwrite and delete each other's checkpoints"),
            ]
    rows += titled("tracking", list(_tracking(plan)))
    rows += rank_rows(plan)
    rows += _batch_rows(plan)
    if plan.tuning is None:
        rows += [("cost", cost(plan)), ("ends", _ends(plan))]
    else:
        rows += [("each trial", cost(plan)), *sweep_rows(plan)]
    if spec.serve is not None:
        rows.append(("serving", _serving(spec, spec.serve, plan.prices)))
    rows += titled("creates", list(plan.side_effects))
    rows += titled("rehearsed", [one.summary for one in plan.rehearsals])
    rows += titled("notes", [one.message for one in plan.diagnostics if one.severity is Severity.NOTE])
    if plan.placeholders and plan.local is None:
        rows.append(("to fill in", to_fill_in(plan.placeholders)))
    return [*rows, ("plan", plan.hash)]


def _storage(type_: Instance | None, volume_gb: int) -> str:
    """What ``compute.volume_gb`` sets; hosts with local disks have no other storage."""
    disks = type_.local_nvme_gb if type_ is not None else None
    return f"{disks:,} GB of local NVMe disks" if disks else f"{volume_gb:,} GB of storage"


def _torchrun(plan: Plan) -> str:
    """torch.distributed, and who starts its workers, as far as the image shows it."""
    starts = "AWS's toolkit starts torchrun" if plan.image.source == "AWS" else "the image starts the workers"
    return f"{plan.spec.engine} (torch.distributed); {starts}"


def _tracking(plan: Plan) -> Iterator[str]:
    tracking = plan.spec.tracking
    if tracking.tensorboard is not None:
        where = tensorboard_location(plan.spec, plan.job)
        yield f"TensorBoard: {tracking.tensorboard.path} copied to {where}"
    if tracking.mlflow is not None:
        place = f" in {tracking.mlflow.uri}" if tracking.mlflow.uri is not None else ""
        yield f"MLflow: experiment {tracking.mlflow.experiment}{place}"
    if tracking.wandb is not None:
        entity = f"{tracking.wandb.entity}/" if tracking.wandb.entity is not None else ""
        yield f"Weights & Biases: project {entity}{tracking.wandb.project}"


def _batch_rows(plan: Plan) -> list[Row]:
    advice = plan.batch
    if advice is None:
        return []
    rows = []
    if advice.global_size is not None:
        worker = "worker" if on_cpus(plan.spec) else "GPU"
        each = f", {advice.per_worker} on each {worker}" if advice.per_worker is not None else ""
        rows.append(("batch", f"{advice.global_size} in each step{each}"))
    if advice.formula is not None:
        actual = f"; the job sets {advice.learning_rate:g}" if advice.learning_rate is not None else ""
        if not passes_learning_rate(plan.spec):
            actual = f" is advised; the job passes no {' or '.join(LEARNING_RATE_NAMES)}"
        rows.append(("learning rate", f"{advice.formula}{actual}"))
    if advice.warmup_steps is not None:
        rows.append(("warm-up", count(advice.warmup_steps, "step")))
    return rows


def cost(plan: Plan) -> str:
    """The upper bounds of the bill."""
    bill = plan.billing
    hours = f"{bill.instance_hours:.2f} instance-hours at most"
    if bill.warm_instance_hours:
        hours += f", and {bill.warm_instance_hours:.2f} of a warm pool"
    if bill.usd is not None:
        hourly = f"{bill.price:g} an hour"
        if plan.spec.compute.other_groups and bill.price is not None:
            hourly = f"{bill.price * host_count(plan.spec):g} an hour for all hosts"
        hours += f": {bill.usd:,.2f} USD at {hourly} ({bill.price_source})"
    if bill.ceiling_usd is not None:
        hours += f"; the budget is {bill.ceiling_usd:,.2f} USD"
    return hours


def _serving(spec: JobSpec, serve: Serve, prices: PriceTable | None) -> str:
    """What `deploy` would make of the model, and its cost: before the training is paid for."""
    hosts = "" if serve.kind == "serverless" else f", {serve.instance_count} x {serve.instance_type}"
    text = f"{serve.kind}{hosts}"
    hourly = serving_hourly(spec, prices)
    if hourly is not None:
        text += f": {hourly:,.2f} USD an hour, {hourly * 24:,.2f} USD a day"
    if serve.lifetime is not None:
        text += f", for {duration(serve.lifetime)}"
    return f"{text}, after `smdp-launch deploy`"


def _ends(plan: Plan) -> str:
    latest = plan.billing.latest_end
    if latest is None and plan.spec.compute.training_plan is not None:
        return "no limit: the job waits for the reserved instances of the training plan"
    if latest is None and not pending_is_limited(plan.spec):
        return "no limit: SageMaker does not limit the wait for instances without accelerators"
    if latest is None:
        return "no limit: set compute.max_pending to limit the wait for capacity"
    return f"{latest:%Y-%m-%d %H:%M} UTC at the latest, if launched now"


def _image(facts: ImageFacts) -> str:
    unknown = "no CUDA, an image for CPUs" if facts.is_for_cpus else "CUDA version unknown"
    contents = [f"CUDA {facts.cuda}" if facts.cuda is not None else unknown]
    if facts.python is not None:
        contents.append(f"Python {facts.python}")
    if facts.compute_capability is not None:
        contents.append(f"for GPUs of compute capability {facts.compute_capability}")
    return f"{facts.source}: {', '.join(contents)}"


def _channel(channel: S3Channel | FsxChannel | EfsChannel) -> str:
    if isinstance(channel, S3Channel):
        sharded = ", a share for each host" if channel.distribution == "ShardedByS3Key" else ""
        named = f", for {listed(channel.groups)}" if channel.groups is not None else ""
        return f"{channel.s3} ({channel.mode}{sharded}{named})"
    name = channel.fsx if isinstance(channel, FsxChannel) else channel.efs
    rate = declared_mb_s(channel) if isinstance(channel, FsxChannel) else None
    speed = f", {rate:,.0f} MB/s" if rate is not None else ""
    return f"{name}:{channel.path} ({channel.access}{speed})"


def rank_rows(plan: Plan) -> list[Row]:
    """A row for each host, with the ranks of its workers. The JSON output has every rank."""
    by_host: dict[str, list[int]] = {}
    for one in plan.ranks:
        by_host.setdefault(one.host, []).append(one.rank)
    spans = {host: f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}" for host, ranks in by_host.items()}
    return titled("ranks", [f"{host}: {ranks}" for host, ranks in spans.items()])
