"""Hooks that do not depend on the framework: printing, logging, and checkpoints of safetensors and of this package."""

import builtins
import logging
from types import ModuleType
from typing import Any, Callable

from .after_import import after_import
from .clock import LOGGING, Clock, measured, measured_saves

Prepare = Callable[[Any], Any]


def install(clock: Clock, prepare: Prepare) -> None:
    """``prepare`` is applied to every function that replaces another: a framework's compiler may have to skip it."""
    builtins.print = prepare(measured(clock, LOGGING, builtins.print))
    handler: Any = logging.Handler
    handler.handle = prepare(measured(clock, LOGGING, logging.Handler.handle))

    def save_file(module: ModuleType) -> None:
        replace(module, "save_file", lambda function: prepare(measured_saves(clock, function)))

    def checkpoints(module: ModuleType) -> None:
        for owner, name in (
            (module.Checkpoints, "save"),
            (module.ShardedCheckpoints, "save"),
            (module.ShardedCheckpoints, "async_save"),
        ):
            replace(owner, name, lambda function: prepare(measured_saves(clock, function)))

    after_import(
        {
            "safetensors.numpy": save_file,
            "safetensors.torch": save_file,
            "safetensors.tensorflow": save_file,
            "smdp_engine.checkpoint": checkpoints,
        }
    )


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of a module or class, if it has one of this name."""
    function = getattr(owner, name, None)
    if callable(function):
        setattr(owner, name, wrap(function))
