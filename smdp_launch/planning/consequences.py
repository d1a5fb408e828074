"""Consequences of a job: batch and learning rate, the image's contents, cost, and the resources that it creates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from smdp_launch.catalog.frameworks import build
from smdp_launch.catalog.images import aws_build, parse_image, tag_facts
from smdp_launch.catalog.instances import instance
from smdp_launch.catalog.prices import PriceTable
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.batch import (
    global_batch,
    learning_rate_name,
    scaled_learning_rate,
    worker_batch,
)
from smdp_launch.request.build import Request, tensorboard_location
from smdp_launch.request.cost import highest_price, most_usd, pending_is_limited, training_hours, warm_hours
from smdp_launch.units import count

_FACTORS = {"linear": "{size} / {reference}", "sqrt": "sqrt({size} / {reference})", "none": "1"}


@dataclass(frozen=True)
class Batch:
    """Samples of one step, and the learning rate for them.

    Args:
        learning_rate: the script's hyperparameter, if it is a number.
        advised: the reference learning rate scaled to ``global_size`` by ``formula``.
    """

    global_size: int | None
    per_worker: int | None
    learning_rate: float | None
    advised: float | None
    formula: str | None
    warmup_steps: int | None


@dataclass(frozen=True)
class ImageFacts:
    """What is known about the image without pulling it; None for what is not known.

    Args:
        source: ``AWS`` for AWS's own images, else ``yours``.
        is_for_cpus: it contains no CUDA.
    """

    uri: str
    source: str
    cuda: str | None
    python: str | None
    compute_capability: str | None
    is_for_cpus: bool


@dataclass(frozen=True)
class Billing:
    """Upper bounds. ``usd`` needs a price table; nothing is estimated.

    Args:
        price: USD an hour of the most expensive type that the job can get; with several groups the mean of all hosts.
        ceiling_usd: ``budget.max_usd``.
        instance_hours: of training, with ``compute.max_run`` as the limit.
        warm_instance_hours: of the warm pool after the job.
        latest_end: None if the job can wait for capacity without a limit.
    """

    instance_hours: float
    warm_instance_hours: float
    latest_end: datetime | None
    usd: float | None = None
    price: float | None = None
    price_source: str | None = None
    ceiling_usd: float | None = None


def batch(spec: JobSpec) -> Batch | None:
    """None if the job file has no ``batch``."""
    if spec.batch is None:
        return None
    name = learning_rate_name(spec)
    rate = spec.script.hyperparameters.get(name) if name is not None else None
    size, reference = global_batch(spec), spec.batch.reference_size
    advised = scaled_learning_rate(spec)
    formula = None
    if advised is not None:
        factor = _FACTORS[spec.batch.scaling].format(size=size, reference=reference)
        formula = f"{spec.batch.reference_learning_rate:g} x {factor} = {advised:g}"
    return Batch(
        global_size=size,
        per_worker=worker_batch(spec),
        learning_rate=float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else None,
        advised=advised,
        formula=formula,
        warmup_steps=spec.batch.warmup_steps,
    )


def image_facts(spec: JobSpec, request: Request) -> ImageFacts:
    uri = str(request["AlgorithmSpecification"]["TrainingImage"])
    parsed = parse_image(uri)
    tag = tag_facts(parsed.tag or "") if parsed is not None else None
    known = aws_build(parsed) if parsed is not None else None
    is_for_cpus = tag is not None and tag.processor == "cpu"
    if spec.image is None and known is None and not is_for_cpus:
        known = build(spec.framework.name, spec.framework.version)
    host = instance(spec.compute.instance_type)
    return ImageFacts(
        uri=uri,
        source="AWS" if parsed is not None and parsed.is_aws else "yours",
        cuda=known.cuda if known is not None else tag.cuda if tag is not None else None,
        python=known.python if known is not None else tag.python if tag is not None else None,
        compute_capability=host.compute_capability if host is not None else None,
        is_for_cpus=is_for_cpus,
    )


def billing(spec: JobSpec, now: datetime, prices: PriceTable | None = None) -> Billing:
    price = highest_price(spec, prices) if prices is not None else None
    return Billing(
        instance_hours=training_hours(spec),
        warm_instance_hours=warm_hours(spec),
        latest_end=_latest_end(spec, now),
        usd=most_usd(spec, prices) if prices is not None else None,
        price=price,
        price_source=f"{prices.source}, {prices.date}" if prices is not None and price is not None else None,
        ceiling_usd=spec.budget.max_usd,
    )


def side_effects(spec: JobSpec, request: Request) -> Iterator[str]:
    """The resources and costs of a launch besides the hosts' hours. Debugger and profiler are off."""
    yield f"objects under {spec.output.s3}: the source archive, model.tar.gz, output.tar.gz"
    if spec.checkpoint is not None:
        others = ", beside those of other jobs" if spec.checkpoint.shared else ""
        yield f"objects under {request['CheckpointConfig']['S3Uri']}: checkpoints{others}, until you delete them"
    board = tensorboard_location(spec, request.get("TrainingJobName", "JOB"))
    if board is not None:
        yield f"objects under {board}: event files, until you delete them"
    yield "a log group, /aws/sagemaker/TrainingJobs, with a stream for each host"
    if spec.compute.keep_alive:
        yield f"a warm pool: the hosts stay for up to {spec.compute.keep_alive} s after the job, at full price"
    if spec.remote_debug:
        yield "a shell in each container for everyone who may call ssm:StartSession on the job"
    if spec.compute.retries:
        yield f"up to {count(spec.compute.retries, 'restart')} after an internal error of SageMaker, each billed"
    if spec.retries is not None:
        more = count(spec.retries.at_most, "more job")
        yield f"up to {more} after failures ({', '.join(spec.retries.on)}), each billed"
    for name in sorted(set(spec.overlay) & {"DebugRuleConfigurations", "ProfilerRuleConfigurations"}):
        yield f"{name} of the overlay: additional processing instances, billed separately"


def _latest_end(spec: JobSpec, now: datetime) -> datetime | None:
    if spec.spot is not None and spec.spot.max_wait is not None:
        return now + timedelta(seconds=spec.spot.max_wait)
    # The waits for the reservations of a training plan do not count as pending (API reference, StoppingCondition).
    is_limited = pending_is_limited(spec) and spec.compute.training_plan is None
    if spec.compute.max_pending is not None and is_limited:
        return now + timedelta(seconds=spec.compute.max_pending + spec.compute.max_run)
    return None
