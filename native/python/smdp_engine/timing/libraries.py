"""Hooks for training libraries: what they save and evaluate in one call, which consists of many calls of torch."""

import functools
from types import ModuleType
from typing import Any, Callable, Dict, Tuple

from .after_import import after_import
from .clock import EVALUATION, Clock, measured, measured_saves
from .common_hooks import replace

_Methods = Tuple[Tuple[str, str], ...]

#: Modules, and the methods of their classes that save a checkpoint.
_SAVES: Dict[str, _Methods] = {
    "accelerate.accelerator": (("Accelerator", "save_state"),),
    "deepspeed.runtime.engine": (("DeepSpeedEngine", "save_checkpoint"),),
    "lightning.fabric.plugins.io.torch_io": (("TorchCheckpointIO", "save_checkpoint"),),
    "lightning_fabric.plugins.io.torch_io": (("TorchCheckpointIO", "save_checkpoint"),),
    "transformers.trainer": (("Trainer", "_save_checkpoint"),),
}
#: Methods that evaluate.
_EVALUATIONS: Dict[str, _Methods] = {
    "transformers.trainer": (("Trainer", "evaluate"), ("Trainer", "predict")),
}


def install(clock: Clock, prepare: Callable[[Any], Any]) -> None:
    """``prepare`` is applied to the functions that replace the libraries' own."""

    def measure(name: str, module: ModuleType) -> None:
        for class_, method in _SAVES.get(name, ()):
            replace(getattr(module, class_, None), method, lambda function: prepare(measured_saves(clock, function)))
        for class_, method in _EVALUATIONS.get(name, ()):
            replace(
                getattr(module, class_, None), method, lambda function: prepare(measured(clock, EVALUATION, function))
            )

    names = {*_SAVES, *_EVALUATIONS}
    after_import({name: functools.partial(measure, name) for name in names})
