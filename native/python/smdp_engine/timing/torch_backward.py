"""Measures the backward pass, and within it the time that only waits for the exchange of gradients.

DistributedDataParallel waits for its buckets at the end of the pass: when all gradients are ready, it queues a final
callback of the autograd engine, which waits. Final callbacks run in the order in which they are queued. The hook below
queues one at the beginning of the pass, so it runs first: when all gradients are computed. From there to the end of the
pass is time of the exchange. The first generation's DistributedDataParallel and FSDP wait in the same place.
"""

import functools
import importlib
from collections import OrderedDict
from types import ModuleType
from typing import Any, Callable, List, Optional, Tuple, cast

from .after_import import after_import
from .clock import BACKWARD, EXCHANGE, FORWARD, OPTIMIZER, OTHER, Clock
from .native import MODULE
from .torch_loaders import Loaders

torch: Any = importlib.import_module("torch")

_KEY = "smdp"  # those of Tensor.register_hook are numbers


class Passes:
    """Measures backward passes in the training thread. The native module has the same two functions."""

    def __init__(self, clock: Clock, loaders: Loaders) -> None:
        self._clock = clock
        self._loaders = loaders
        self._groups, self._has_group = _groups()
        self._compiler = _compiler_of_passes()
        self._hook = _hook_that_calls(
            torch.autograd.Variable._execution_engine.queue_callback, clock.gradients_are_ready
        )

    def functions(self) -> Tuple[Callable[[Any], Any], Callable[[Any], None]]:
        """``begin`` and ``end``: the native ones if they are there."""
        if MODULE is None:
            return self.begin, self.end
        begin, end = cast(Any, self._clock).passes_measured(
            *(self._loaders.train, self._loaders.enter_loop, self._groups, self._has_group),
            *(self._compiler, torch.Tensor, OrderedDict, self._hook, _KEY),
        )
        return begin, end

    def begin(self, tensors: Any) -> Optional[Tuple[int, Any]]:
        """A pass begins at these tensors. Returns what ``end`` takes; None for a pass that is not measured: one of
        another thread, or within another one, as in a checkpoint that recomputes its part."""
        clock = self._clock
        if not clock.is_own_thread:
            clock.adopt()
        if not clock.is_own_thread or clock.is_within(BACKWARD) or clock.is_within(EXCHANGE):
            return None
        self._loaders.train()
        mark = clock.enter(BACKWARD)
        try:
            return mark, self._hook_beginning(tensors)
        except BaseException:
            self._leave(mark)
            raise

    def end(self, begun: Tuple[int, Any]) -> None:
        mark, hooks = begun
        self._leave(mark)
        if hooks is not None:
            hooks.pop(_KEY, None)
        if self._clock.workers < 0:
            self._loaders.enter_loop()

    def _leave(self, mark: int) -> None:
        self._clock.leave(mark, OTHER)
        if mark > 1:
            self._clock.turn(FORWARD, OPTIMIZER)  # in the closure of an optimizer's step

    def _hook_beginning(self, tensors: Any) -> Any:
        """The hook runs at the beginning of the pass. Returns the dictionary with it, None without one."""
        groups, compiler = self._groups, self._compiler
        if not (getattr(groups._world, "_default_pg", None) is not None if groups else self._has_group()):
            return None
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        is_compiled = compiler and getattr(compiler[0], "compiled_autograd_enabled", False)
        function = first.grad_fn if type(first) is torch.Tensor and not is_compiled else None
        if function is None:
            return None
        # As Tensor.register_hook does, without its handle, which takes three times as long.
        hooks = first._backward_hooks
        if hooks is None:
            hooks = first._backward_hooks = OrderedDict()
            function._register_hook_dict(first)
        hooks[_KEY] = self._hook
        return hooks


def install(clock: Clock, loaders: Loaders, prepare: Callable[[Any], Any]) -> None:
    """``prepare`` is applied to the functions that torch calls."""
    run = torch.autograd.backward
    passes = Passes(clock, loaders)
    begin, end = passes.functions()
    for function in vars(Passes).values():
        if callable(function) and hasattr(function, "__code__"):
            prepare(function)

    @functools.wraps(run)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        begun = begin(tensors)
        if begun is None:
            run(tensors, *args, **kwargs)
            return
        try:
            run(tensors, *args, **kwargs)
        finally:
            end(begun)

    torch.autograd.backward = prepare(backward)


def _groups() -> Tuple[Any, Callable[[], bool]]:
    """How to ask whether the process has a default group, and so may exchange gradients: the module whose ``_world``
    has it as ``_default_pg``, or None, and the function to call without that module."""
    dist = torch.distributed
    if not dist.is_available():
        return None, bool
    groups = dist.distributed_c10d
    # Not is_initialized, which calls three functions.
    return (groups if hasattr(getattr(groups, "_world", None), "_default_pg") else None), dist.is_initialized


def _hook_that_calls(function: Any, argument: Any) -> Any:
    """A hook of a tensor that calls ``function(argument)``."""
    if MODULE is not None:
        return MODULE.hook_that_calls(function, argument)

    def hook(_: Any) -> None:
        function(argument)

    return hook


def _compiler_of_passes() -> List[ModuleType]:
    """The module with which torch.compile traces backward passes, once the script has imported it. While it traces, it
    does not support every final callback."""
    found: List[ModuleType] = []
    after_import({"torch._dynamo.compiled_autograd": found.append})
    return found
