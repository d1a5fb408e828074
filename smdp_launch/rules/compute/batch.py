"""Whether batch size, learning rate and mixed precision fit the job's GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.spec import Batch
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.batch import (
    LEARNING_RATE_NAMES,
    global_batch,
    learning_rate_name,
    passes_learning_rate,
    scaled_learning_rate,
    worker_batch,
    world_size,
)
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.instance_types import trains_on_cpus, workers_are_known

_WORLD = ("compute.instance_type", "compute.instance_count")
_SIZES = ("batch.global", "batch.per_gpu")
_REFERENCE = ("batch.reference_size", "batch.reference_learning_rate", "batch.scaling")
_RATE = (*_REFERENCE, "batch.learning_rate", "script.hyperparameters")
_HYPERPARAMETERS = ("script", "hyperparameters")

# From this multiple of the reference batch on, training needs a warm-up (Goyal et al. 2017: from 8 times 256).
_WARM_UP_FACTOR = 8
#: Tensor cores work on blocks of eight.
_BLOCK = 8
#: Relative. Users round learning rates.
_TOLERANCE = 0.02


@rule("SMDP505", *_WORLD, *_SIZES, *_RATE, severity=Severity.WARNING)
def learning_rate_is_scaled(facts: Facts) -> Iterator[Problem]:
    spec = facts.spec
    name, size, scaled = learning_rate_name(spec), global_batch(spec), scaled_learning_rate(spec)
    batch = spec.batch
    if batch is None or name is None or size is None or scaled is None or not workers_are_known(facts):
        return
    rate = spec.script.hyperparameters.get(name) if facts.loaded.has(*_HYPERPARAMETERS, name) else None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or _close(rate, scaled):
        return
    reference, reference_size = batch.reference_learning_rate, batch.reference_size
    ratio = f"{size} / {reference_size}"
    factor = {"linear": ratio, "sqrt": f"sqrt({ratio})", "none": "1"}[batch.scaling]
    origin = f" (per_gpu {batch.per_gpu} on every worker)" if batch.per_gpu is not None else ""
    message = (
        f"{name} is {rate:g} for a global batch of {size}{origin};"
        f" the reference is {reference:g} for a batch of {reference_size}"
    )
    formula = f"{batch.scaling}: reference_learning_rate {reference:g} x {factor}"
    help_ = f"write {_rounded(scaled)} ({formula}), or choose another `scaling`"
    yield Problem((*_HYPERPARAMETERS, name), message, help_, replacement=to_yaml(float(_rounded(scaled))))


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * abs(other)


def _rounded(value: float) -> str:
    return f"{value:.4g}"


@rule("SMDP506", *_WORLD, *_SIZES, "batch.reference_size")
def batch_is_divisible(facts: Facts) -> Iterator[Problem]:
    batch = facts.spec.batch
    size = batch.global_size if batch is not None and batch.per_gpu is None else None
    if size is None or not workers_are_known(facts) or size % world_size(facts.spec) == 0:
        return
    world = world_size(facts.spec)
    below, above = size // world * world, (size // world + 1) * world
    hosts = facts.spec.compute.instance_count
    workers = f"{world} workers" if trains_on_cpus(facts) else f"{world} GPUs ({hosts} x {world // hosts})"
    message = f"a global batch of {size} cannot be shared equally by {workers}"
    only = str(above) if not below and _alone(batch) else None
    yield Problem(("batch", "global"), message, f"write {f'{below} or ' if below else ''}{above}", replacement=only)


def _alone(batch: Batch | None) -> bool:
    """Whether the batch size can change without the learning rate: there is no reference to scale it from."""
    return batch is not None and batch.reference_size is None


@rule("SMDP507", *_SIZES)
def one_batch_size(facts: Facts) -> Iterator[Problem]:
    batch = facts.spec.batch
    if batch is None or (batch.global_size is None) != (batch.per_gpu is None):
        return
    if batch.per_gpu is None:
        message = "batch sets neither `global` nor `per_gpu`, so it has no effect"
        help_ = "add the size that stays the same when the number of GPUs changes"
        yield Problem(("batch",), message, help_, on_key=True)
    else:
        message = "batch sets both `global` and `per_gpu`; each follows from the other and the number of GPUs"
        help_ = "keep only the size that stays the same when the number of GPUs changes"
        yield Problem(("batch", "per_gpu"), message, help_, on_key=True)


@rule("SMDP508", "batch.reference_size", "batch.reference_learning_rate")
def reference_is_complete(facts: Facts) -> Iterator[Problem]:
    batch = facts.spec.batch
    if batch is None or (batch.reference_size is None) == (batch.reference_learning_rate is None):
        return
    present, missing = "reference_size", "reference_learning_rate"
    if batch.reference_size is None:
        present, missing = missing, present
    message = f"`{present}` is set without `{missing}`: scaling the learning rate needs both"
    yield Problem(("batch", present), message, f"add `{missing}:`", on_key=True)


@rule("SMDP509", "compute.instance_type", "compute.fallback_types", "amp")
def gpu_supports_precision(facts: Facts) -> Iterator[Problem]:
    if facts.spec.amp != "bf16":
        return
    for type_ in _types(facts):
        if type_.is_documented("compute_capability") and type_.capability < (8, 0):
            message = f"the {type_.gpu} of {type_.name} (compute capability {type_.compute_capability}) has no bf16"
            yield Problem(("amp",), message, "write fp16, or choose an instance type with A100 or later GPUs")
            return


def _types(facts: Facts) -> list[Instance]:
    compute = facts.spec.compute
    named = [instance(one) for one in (compute.instance_type, *(compute.fallback_types or []))]
    return [one for one in named if one is not None]


@rule("SMDP510", *_WORLD, *_SIZES, "batch.reference_size", "amp", severity=Severity.WARNING)
def amp_batch(facts: Facts) -> Iterator[Problem]:
    batch, size = facts.spec.batch, worker_batch(facts.spec)
    has_gpus = instance(facts.spec.compute.instance_type) is not None
    if batch is None or facts.spec.amp is None or size is None or size % _BLOCK == 0 or not has_gpus:
        return
    where = "per_gpu" if batch.per_gpu is not None else "global"
    world = 1 if where == "per_gpu" else world_size(facts.spec)
    above = (size // _BLOCK + 1) * _BLOCK * world
    message = f"each GPU gets a batch of {size}; with mixed precision, tensor cores work on multiples of {_BLOCK}"
    help_ = f"write {above}, which gives each GPU a multiple of {_BLOCK}"
    yield Problem(("batch", where), message, help_, replacement=str(above) if _alone(batch) else None)


@rule("SMDP511", *_WORLD, *_SIZES, *_REFERENCE, "batch.warmup_steps", severity=Severity.WARNING)
def large_batch_warms_up(facts: Facts) -> Iterator[Problem]:
    batch, size = facts.spec.batch, global_batch(facts.spec)
    if batch is None or size is None or batch.reference_size is None or not workers_are_known(facts):
        return
    times = size / batch.reference_size
    if times >= _WARM_UP_FACTOR and not batch.warmup_steps and batch.scaling != "none":
        message = f"the global batch of {size} is {times:g} times the reference, and the learning rate has no warm-up"
        help_ = "add `warmup_steps:`, such as the steps of the first five epochs, and apply it in the script"
        yield Problem(("batch", "reference_size"), message, help_)


@rule("SMDP513", "batch.hyperparameter", "script.hyperparameters")
def batch_hyperparameter_once(facts: Facts) -> Iterator[Problem]:
    batch = facts.spec.batch
    name = batch.hyperparameter if batch is not None else None
    if name is not None and name in facts.spec.script.hyperparameters:
        message = f"{name} is set twice: here, and by `batch.hyperparameter` to each worker's batch size"
        yield Problem((*_HYPERPARAMETERS, name), message, "remove one of the two", on_key=True)


@rule("SMDP514", *_WORLD, *_SIZES, *_RATE, "script.entry", "script.source", "sweep", severity=Severity.WARNING)
def learning_rate_is_passed(facts: Facts) -> Iterator[Problem]:
    scaled = scaled_learning_rate(facts.spec)
    if scaled is None or passes_learning_rate(facts.spec) or not workers_are_known(facts):
        return
    if any(one.scales_learning_rate for _, one in facts.program.files):
        return
    declared = [(name, one) for name, script in facts.scripts.items() for one in script.options]
    for name, one in declared:
        is_default = isinstance(one.default, int | float) and _close(one.default, scaled)
        if one.name in LEARNING_RATE_NAMES and not is_default:
            rate = _rounded(scaled)
            message = f"the reference gives a learning rate of {rate}, but the job passes none to --{one.name}"
            help_ = f"add `{one.name}: {rate}` to `script.hyperparameters`"
            where = f"line {one.line} of {name}"
            at: Location = (*_HYPERPARAMETERS, one.name)
            write = {at: to_yaml(float(rate))}
            yield Problem(("batch", "reference_learning_rate"), f"{message} ({where})", help_, write=write)
            return


@rule("SMDP514", "batch.learning_rate", "script.hyperparameters")
def learning_rate_exists(facts: Facts) -> Iterator[Problem]:
    batch, names = facts.spec.batch, [str(one) for one in facts.document.data["script"].get("hyperparameters") or {}]
    name = batch.learning_rate if batch is not None else None
    ranges = facts.document.value(("sweep", "ranges")) if facts.document.is_written(("sweep", "ranges")) else {}
    tried = (
        [one for kind in ranges.values() if isinstance(kind, dict) for one in kind] if isinstance(ranges, dict) else []
    )
    if name is not None and name not in [*names, *tried]:
        near = closest(name, names)
        add = f"add {name} to `script.hyperparameters`"
        help_ = f'did you mean "{near}"?' if near else f"{add}, or name one of: {', '.join(names)}" if names else add
        message = f"`batch.learning_rate` names the hyperparameter {name}, which the job does not have"
        yield Problem(("batch", "learning_rate"), message, help_, replacement=to_yaml(near) if near else None)
