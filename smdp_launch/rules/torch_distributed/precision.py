"""Whether the GPUs compute in the precision that the script asks for."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.source.script.launching import named_precision
from smdp_launch.source.syntax.tree import Mark

_NEEDS = ("compute.instance_type", "script.entry", "script.hyperparameters", "framework.name")
#: The first compute capability with the type in its tensor cores.
_FIRST = {"bf16": (8, 0), "fp8": (8, 9)}
_GPUS = {"bf16": "A100 or later", "fp8": "L4, L40S, H100 or later"}
_SWITCHES = frozenset({"bf16", "bfloat16", "bf16_full_eval", "fp8"})
_NAMING = frozenset({"precision", "dtype", "amp_dtype", "mixed_precision", "torch_dtype"})
#: Names with which a script asks the GPU first.
_ASKS = frozenset({"is_bf16_supported", "get_device_capability", "is_torch_bf16_gpu_available", "is_fp8_available"})


@rule("SMDP515", *_NEEDS)
def gpu_supports_fp8(facts: Facts) -> Iterator[Problem]:
    yield from _unsupported(facts, "fp8")


@rule("SMDP515", *_NEEDS, severity=Severity.WARNING)
def gpu_supports_bf16(facts: Facts) -> Iterator[Problem]:
    """V100 and T4 compute in bf16 without tensor cores, slower than in fp32: no error."""
    if facts.spec.amp != "bf16":  # which SMDP509 reports
        yield from _unsupported(facts, "bf16")


def _unsupported(facts: Facts, kind: str) -> Iterator[Problem]:
    type_ = instance(facts.spec.compute.instance_type)
    if type_ is None or not type_.is_documented("compute_capability") or type_.capability >= _FIRST[kind]:
        return
    if not facts.program.names.isdisjoint(_ASKS):
        return
    message, help_ = _texts(type_, kind)
    for at in _hyperparameters(facts, kind):
        yield Problem(at, message, help_)
        return
    zero = facts.deepspeed
    if zero is not None and kind == "bf16" and zero.bf16:
        yield Problem(("script", "hyperparameters"), f"{zero.file} asks for bf16: {message}", help_, on_key=True)
        return
    for name, file in facts.program.files:
        for one in file.precisions:
            if one.kind == kind:
                yield _in_script(facts, name, one.mark, f"{one.written}: {message}", help_)
                return


def _texts(type_: Instance, kind: str) -> tuple[str, str]:
    has = f"the {type_.gpu} of {type_.name} (compute capability {type_.compute_capability})"
    rather = "fp16" if kind == "bf16" else "bf16" if type_.capability >= _FIRST["bf16"] else "fp16"
    how = "computes in bf16 slower than in fp32" if kind == "bf16" else "has no fp8"
    return f"{has} {how}", f"use {rather}, or choose an instance type with {_GPUS[kind]}"


def _hyperparameters(facts: Facts, kind: str) -> Iterator[tuple[str, ...]]:
    for name, value in facts.spec.script.hyperparameters.items():
        key = name.replace("-", "_").lower()
        is_on = key in _SWITCHES and value in (True, "True", "true") and named_precision(key) == kind
        if is_on or (key in _NAMING and isinstance(value, str) and named_precision(value) == kind):
            yield ("script", "hyperparameters", name)


def _in_script(facts: Facts, name: str, mark: Mark, message: str, help_: str) -> Problem:
    span = place(facts, name, mark)
    return Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)
