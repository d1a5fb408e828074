"""Batch, learning rate and mixed precision against the GPUs of the job."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.spec import Batch
from smdp_launch.jobfile.yaml.text import written
from smdp_launch.request.batch import (
    global_batch,
    learning_rate_name,
    scaled_learning_rate,
    worker_batch,
    world_size,
)
from smdp_launch.rules.base.facts import Facts, Finding, rule

_WORLD = ("compute.instance_type", "compute.instance_count")
_SIZES = ("batch.global", "batch.per_gpu")
_REFERENCE = ("batch.reference_size", "batch.reference_learning_rate", "batch.scaling")
_RATE = (*_REFERENCE, "batch.learning_rate", "script.hyperparameters")
_HYPERPARAMETERS = ("script", "hyperparameters")

# Batches this many times the reference need a warm-up (Goyal et al. 2017 use one from 8 times 256 on).
_MUCH_LARGER = 8
#: Tensor cores work on blocks of eight.
_BLOCK = 8
#: Relative; what a person writes is rounded.
_CLOSE_ENOUGH = 0.02


def _known_world(facts: Facts) -> bool:
    return instance(facts.spec.compute.instance_type) is not None


@rule("SMDP505", *_WORLD, *_SIZES, *_RATE, severity=Severity.WARNING)
def learning_rate_is_scaled(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    name, size, scaled = learning_rate_name(spec), global_batch(spec), scaled_learning_rate(spec)
    batch = spec.batch
    if batch is None or name is None or size is None or scaled is None or not _known_world(facts):
        return
    given = spec.script.hyperparameters.get(name) if facts.loaded.has(*_HYPERPARAMETERS, name) else None
    if isinstance(given, bool) or not isinstance(given, int | float) or _close(given, scaled):
        return
    was, size_was = batch.reference_learning_rate, batch.reference_size
    factor = {"linear": f"{size} / {size_was}", "sqrt": f"sqrt({size} / {size_was})", "none": "1"}[batch.scaling]
    made = f" (per_gpu {batch.per_gpu} on every worker)" if batch.per_gpu is not None else ""
    message = f"{name} is {given:g}, and the global batch is {size}{made} where {was:g} was found for {size_was}"
    formula = f"{batch.scaling}: reference_learning_rate {was:g} x {factor}"
    help_ = f"write {_rounded(scaled)} ({formula}), or choose another `scaling`"
    yield Finding((*_HYPERPARAMETERS, name), message, help_, replacement=written(float(_rounded(scaled))))


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE_ENOUGH * abs(other)


def _rounded(value: float) -> str:
    return f"{value:.4g}"


@rule("SMDP506", *_WORLD, *_SIZES, "batch.reference_size")
def batch_is_divisible(facts: Facts) -> Iterator[Finding]:
    batch = facts.spec.batch
    size = batch.global_size if batch is not None and batch.per_gpu is None else None
    if size is None or not _known_world(facts) or size % world_size(facts.spec) == 0:
        return
    world = world_size(facts.spec)
    below, above = size // world * world, (size // world + 1) * world
    hosts = facts.spec.compute.instance_count
    message = f"a global batch of {size} cannot be shared equally by {world} GPUs ({hosts} x {world // hosts})"
    only = str(above) if not below and _alone(batch) else None
    yield Finding(("batch", "global"), message, f"write {f'{below} or ' if below else ''}{above}", replacement=only)


def _alone(batch: Batch | None) -> bool:
    """Whether another batch size leaves the learning rate right: without a reference none follows from it."""
    return batch is not None and batch.reference_size is None


@rule("SMDP507", *_SIZES)
def one_batch_size(facts: Facts) -> Iterator[Finding]:
    batch = facts.spec.batch
    if batch is None or (batch.global_size is None) != (batch.per_gpu is None):
        return
    if batch.per_gpu is None:
        message = "batch says neither `global` nor `per_gpu`, so nothing follows from it"
        yield Finding(("batch",), message, "add the one that stays when the number of GPUs changes", on_key=True)
    else:
        message = "batch says both `global` and `per_gpu`; the one follows from the other and the number of GPUs"
        help_ = "keep the one that stays when the number of GPUs changes"
        yield Finding(("batch", "per_gpu"), message, help_, on_key=True)


@rule("SMDP508", "batch.reference_size", "batch.reference_learning_rate")
def whole_reference(facts: Facts) -> Iterator[Finding]:
    batch = facts.spec.batch
    if batch is None or (batch.reference_size is None) == (batch.reference_learning_rate is None):
        return
    given, missing = "reference_size", "reference_learning_rate"
    if batch.reference_size is None:
        given, missing = missing, given
    message = f"`{given}` without `{missing}`: the learning rate cannot be scaled from half a reference"
    yield Finding(("batch", given), message, f"add `{missing}:`", on_key=True)


@rule("SMDP509", "compute.instance_type", "compute.fallback_types", "amp")
def gpu_knows_precision(facts: Facts) -> Iterator[Finding]:
    if facts.spec.amp != "bf16":
        return
    for found in _types(facts):
        if _capability(found) < (8, 0) and "compute_capability" not in found.from_memory:
            message = f"the {found.gpu} of {found.name} (compute capability {found.compute_capability}) has no bf16"
            yield Finding(("amp",), message, "write fp16, or choose a type with A100 or later GPUs")
            return


def _types(facts: Facts) -> list[Instance]:
    compute = facts.spec.compute
    named = [instance(one) for one in (compute.instance_type, *(compute.fallback_types or []))]
    return [one for one in named if one is not None]


def _capability(one: Instance) -> tuple[int, ...]:
    return tuple(int(part) for part in one.compute_capability.split("."))


@rule("SMDP510", *_WORLD, *_SIZES, "batch.reference_size", "amp", severity=Severity.WARNING)
def amp_batch(facts: Facts) -> Iterator[Finding]:
    batch, size = facts.spec.batch, worker_batch(facts.spec)
    if batch is None or facts.spec.amp is None or size is None or size % _BLOCK == 0 or not _known_world(facts):
        return
    where = "per_gpu" if batch.per_gpu is not None else "global"
    world = 1 if where == "per_gpu" else world_size(facts.spec)
    above = (size // _BLOCK + 1) * _BLOCK * world
    message = f"with mixed precision each GPU gets a batch of {size}, and tensor cores work on multiples of {_BLOCK}"
    help_ = f"write {above}, the next that gives each GPU a multiple of {_BLOCK}"
    yield Finding(("batch", where), message, help_, replacement=str(above) if _alone(batch) else None)


@rule("SMDP511", *_WORLD, *_SIZES, *_REFERENCE, "batch.warmup_steps", severity=Severity.WARNING)
def large_batch_warms_up(facts: Facts) -> Iterator[Finding]:
    batch, size = facts.spec.batch, global_batch(facts.spec)
    if batch is None or size is None or batch.reference_size is None or not _known_world(facts):
        return
    times = size / batch.reference_size
    if times >= _MUCH_LARGER and not batch.warmup_steps and batch.scaling != "none":
        message = f"the global batch of {size} is {times:g} times the reference, and the learning rate has no warm-up"
        help_ = "add `warmup_steps:`, such as the steps of the first five epochs; the script has to follow it"
        yield Finding(("batch", "reference_size"), message, help_)


@rule("SMDP513", "batch.hyperparameter", "script.hyperparameters")
def batch_hyperparameter_once(facts: Facts) -> Iterator[Finding]:
    batch = facts.spec.batch
    name = batch.hyperparameter if batch is not None else None
    if name is not None and name in facts.spec.script.hyperparameters:
        message = f"{name} is set here, and `batch.hyperparameter` sets it to each worker's batch size too"
        yield Finding((*_HYPERPARAMETERS, name), message, "leave one of the two out", on_key=True)


@rule("SMDP514", "batch.learning_rate", "script.hyperparameters")
def learning_rate_is_there(facts: Facts) -> Iterator[Finding]:
    batch, given = facts.spec.batch, [str(one) for one in facts.document.data["script"].get("hyperparameters") or {}]
    name = batch.learning_rate if batch is not None else None
    if name is not None and name not in given:
        near = closest(name, given)
        add = f"add {name} to `script.hyperparameters`"
        help_ = f'did you mean "{near}"?' if near else f"{add}, or name one of: {', '.join(given)}" if given else add
        message = f"`batch.learning_rate` names the hyperparameter {name}, and the script is given none of that name"
        yield Finding(("batch", "learning_rate"), message, help_, replacement=written(near) if near else None)
