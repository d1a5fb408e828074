"""Whether the model fits the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity
from smdp_launch.request.batch import world_size
from smdp_launch.request.memory import GIB, Need, least_memory
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.instance_types import TYPE, located_types

_NEEDS = ("model", "compute.instance_type", "compute.fallback_types", "compute.instance_count")
#: Above this share, little is left for activations and for what CUDA and NCCL reserve.
_TIGHT = 0.8


def _need(facts: Facts, type_: Instance) -> Need | None:
    model, zero = facts.spec.model, facts.deepspeed
    if model is None or not facts.has(*(f"model.{name}" for name in type(model).model_fields)):
        return None
    stages = ("none", "optimizer", "gradients", "parameters")
    if zero is not None and 0 < zero.stage < len(stages) and stages.index(model.sharding) < zero.stage:
        model = model.model_copy(update={"sharding": stages[zero.stage]})
    workers = facts.spec.compute.instance_count * type_.gpus
    offloads = zero is not None and zero.offloads_optimizer
    return least_memory(
        model, workers, offloads_states=offloads, offloads_parameters=zero is not None and zero.offloads_parameters
    )


@rule("SMDP516", *_NEEDS)
def model_fits(facts: Facts) -> Iterator[Problem]:
    yield from _too_small(facts, certain=True)


@rule("SMDP516", *_NEEDS, severity=Severity.WARNING)
def model_may_not_fit(facts: Facts) -> Iterator[Problem]:
    yield from _too_small(facts, certain=False)


def _too_small(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    for at, name in located_types(facts.spec):
        type_ = instance(name)
        need = _need(facts, type_) if type_ is not None else None
        if type_ is None or need is None:
            continue
        memory = type_.gpu_memory_gb * GIB
        cannot = need.total > memory and type_.is_documented("gpu_memory_gb", "gpus")
        if certain == cannot and need.total > _TIGHT * memory:
            where = ("model",) if at == TYPE else at
            yield Problem(where, _message(type_, need, cannot=cannot), _help(facts, need, type_), on_key=at == TYPE)


def _message(type_: Instance, need: Need, *, cannot: bool) -> str:
    parts = (("parameters", need.parameters), ("gradients", need.gradients), ("states of the optimizer", need.states))
    listed = ", ".join(f"{size / GIB:.1f} of {name}" for name, size in parts if size)
    return (
        f"the model {'cannot' if cannot else 'may not'} fit: each {type_.gpu} has {type_.gpu_memory_gb} GiB, and"
        f" training needs at least {need.total / GIB:.1f} GiB on each ({listed})"
    )


def _help(facts: Facts, need: Need, type_: Instance) -> str:
    model = facts.spec.model
    more = "choose a type whose GPUs have more memory"
    if model is None or model.sharding == "parameters":
        return f"{more}, use more hosts, or a smaller type of the parameters"
    sharded = least_memory(model.model_copy(update={"sharding": "parameters"}), world_size(facts.spec))
    left = f"{sharded.total / GIB:.1f} GiB with {world_size(facts.spec)} workers"
    return f"{more}, or share the model out with FSDP or ZeRO 3 (`sharding: parameters`): {left}"
