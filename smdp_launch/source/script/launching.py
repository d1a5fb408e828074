"""Where a file starts workers by itself, the hosts of Lightning, and the precision that it asks for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.source.commandline.options import Option
from smdp_launch.source.script.values import Values
from smdp_launch.source.syntax.extents import Extents
from smdp_launch.source.syntax.tree import Mark, Syntax, keywords, start

_LAUNCHERS = re.compile(r"\b(torchrun|torch\.distributed\.(?:launch|run)|accelerate launch|deepspeed)\s")
_SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_RUNS = ("subprocess.", "os.system", "os.popen")
_LIGHTNING = ("lightning.", "pytorch_lightning.")
#: Arguments that name a precision, in the calls of PyTorch, Lightning, Accelerate and transformers.
_NAMING = {"mixed_precision", "precision"}
_SWITCHES = {"bf16": "bf16", "bf16_full_eval": "bf16", "fp8": "fp8"}
_FP8_CALLS = {"fp8_autocast", "fp8_model_init", "convert_to_float8_training"}


class Precision(NamedTuple):
    """A call that asks for ``bf16`` or ``fp8``, as the code writes it."""

    mark: Mark
    kind: str
    written: str


class Start(NamedTuple):
    """A call that starts workers: ``what`` is its launcher, or spawn."""

    mark: Mark
    what: str


def starts(syntax: Syntax, around: Extents) -> Iterator[Start]:
    """Calls that start workers in every run of their code."""
    for call, name, full_name in syntax.calls:
        if around.is_conditional(start(call)):
            continue
        if full_name in _SPAWN or (name == "spawn" and full_name.endswith("xmp.spawn")):
            yield Start(syntax.mark(call), full_name.rpartition(".")[2])
        elif full_name.startswith(_RUNS):
            launcher = _launcher(call)
            if launcher is not None:
                yield Start(syntax.mark(call), launcher)


def nodes_of_lightning(syntax: Syntax, around: Extents, values: Values) -> Option | None:
    """The option that is ``num_nodes`` of each Trainer of Lightning; None without one, and if a Trainer may get another
    value."""
    trainers = [
        (start(call), keywords(call)["num_nodes"])
        for call, name, full_name in syntax.calls
        if name == "Trainer" and full_name.startswith(_LIGHTNING) and "num_nodes" in keywords(call)
    ]
    options = {values.option(node) if not around.is_conditional(at) else None for at, node in trainers}
    return options.pop() if len(options) == 1 else None


def _launcher(call: ast.Call) -> str | None:
    """The launcher in the command of ``call``, if its text or its list of texts names one."""
    command = call.args[0] if call.args else None
    words = command.elts if isinstance(command, ast.List | ast.Tuple) else [command]
    texts = [one.value for one in words if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    found = _LAUNCHERS.search(" ".join(texts) + " ")
    return found[1] if found is not None else None


def precisions(syntax: Syntax, around: Extents) -> Iterator[Precision]:
    """Calls that ask for bf16 or fp8 in every run of their code; a value that may be another one is left out."""
    for call, name, _ in syntax.calls:
        if around.is_conditional(start(call)):
            continue
        if name in _FP8_CALLS:
            yield Precision(syntax.mark(call), "fp8", name)
        for key, value in keywords(call).items():
            kind = _kind(key, value, syntax)
            if kind is not None:
                yield Precision(syntax.mark(call), kind, f"{key}={syntax.text(value)}")
        if name == "autocast":
            for value in call.args[1:2]:
                if syntax.full_name(value) == "torch.bfloat16":
                    yield Precision(syntax.mark(call), "bf16", "torch.bfloat16")


def _kind(key: str, value: ast.expr, syntax: Syntax) -> str | None:
    if key in _SWITCHES and isinstance(value, ast.Constant) and value.value is True:
        return _SWITCHES[key]
    if key in _NAMING and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return named_precision(value.value)
    is_dtype = key in {"dtype", "torch_dtype", "param_dtype", "reduce_dtype"}
    return "bf16" if is_dtype and syntax.full_name(value) == "torch.bfloat16" else None


def named_precision(text: str) -> str | None:
    """``bf16`` or ``fp8`` for a text such as ``bf16-mixed``, ``bfloat16`` or ``transformer-engine-float8``."""
    plain = text.lower()
    if re.search(r"fp8|float8", plain):
        return "fp8"
    return "bf16" if re.search(r"bf16|bfloat16", plain) else None
