"""The relation between the global batch, the workers and the learning rate."""

from __future__ import annotations

import math

from pydantic import JsonValue

from smdp_launch.catalog.instances import instance
from smdp_launch.jobfile.model.spec import JobSpec

#: Names of the learning rate's hyperparameter, if ``batch.learning_rate`` is not set.
LEARNING_RATE_NAMES = ("lr", "learning-rate", "learning_rate")


def workers_per_host(spec: JobSpec) -> int:
    """One worker per GPU; one on a host without GPUs."""
    known = instance(spec.compute.instance_type)
    return known.gpus if known is not None else 1


def on_cpus(spec: JobSpec) -> bool:
    """Whether the job trains on CPUs: with ``gloo``, on a type without GPUs."""
    return spec.engine == "gloo" and instance(spec.compute.instance_type) is None


def world_size(spec: JobSpec) -> int:
    return spec.compute.instance_count * workers_per_host(spec)


def worker_batch(spec: JobSpec) -> int | None:
    """Samples of one step on each GPU; None if the job does not set a batch, or it does not divide equally."""
    batch = spec.batch
    if batch is None or batch.per_gpu is not None:
        return batch.per_gpu if batch is not None else None
    workers = world_size(spec)
    return batch.global_size // workers if batch.global_size is not None and batch.global_size % workers == 0 else None


def global_batch(spec: JobSpec) -> int | None:
    """Samples of one step on all GPUs together; None if the job does not set a batch."""
    batch = spec.batch
    if batch is None or batch.per_gpu is None:
        return batch.global_size if batch is not None else None
    return batch.per_gpu * world_size(spec)


def learning_rate_name(spec: JobSpec) -> str | None:
    """The name of the hyperparameter for the learning rate; None if the job has none."""
    named = spec.batch.learning_rate if spec.batch is not None else None
    return named or next((one for one in LEARNING_RATE_NAMES if one in spec.script.hyperparameters), None)


def passes_learning_rate(spec: JobSpec) -> bool:
    """Whether the script gets a learning rate: from a hyperparameter, or from a sweep."""
    ranges = spec.sweep.ranges if spec.sweep is not None else None
    tried = {*ranges.integer, *ranges.continuous, *ranges.categorical} if ranges is not None else set[str]()
    return learning_rate_name(spec) is not None or not tried.isdisjoint(LEARNING_RATE_NAMES)


def scaled_learning_rate(spec: JobSpec) -> float | None:
    """The reference learning rate scaled to the job's global batch; None if a value for that is not set."""
    batch, size = spec.batch, global_batch(spec)
    if batch is None or size is None or batch.reference_size is None or batch.reference_learning_rate is None:
        return None
    ratio = size / batch.reference_size
    factor = {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[batch.scaling]
    return batch.reference_learning_rate * factor


def script_hyperparameters(spec: JobSpec) -> dict[str, JsonValue]:
    """The script's hyperparameters: those of the job file, and the batch size if ``batch.hyperparameter`` names one."""
    values = dict(spec.script.hyperparameters)
    size = worker_batch(spec)
    if spec.batch is not None and spec.batch.hyperparameter is not None and size is not None:
        values[spec.batch.hyperparameter] = size
    return values
