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
from typing import Any, Callable, List, Tuple

from .after_import import after_import
from .clock import BACKWARD, EXCHANGE, FORWARD, OPTIMIZER, OTHER, Clock
from .loading import Loading
from .native import MODULE
from .torch_loaders import Loaders

torch: Any = importlib.import_module("torch")

_KEY = "smdp"  # those of Tensor.register_hook are numbers


# One function: each call of another one costs some microseconds with every pass.
def install(clock: Clock, loaders: Loaders, loading: Loading, prepare: Callable[[Any], Any]) -> None:
    """``prepare`` is applied to the function that replaces torch.autograd.backward."""
    run = torch.autograd.backward
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback
    tensor = torch.Tensor
    groups, has_group = _groups()
    compiler = _compiler_of_passes()
    at_the_beginning = _hook_that_calls(queue_callback, clock.gradients_are_ready)

    @functools.wraps(run)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if not clock.is_own_thread:
            clock.adopt()
        if not clock.is_own_thread or (
            not clock.is_at_base and (clock.is_within(BACKWARD) or clock.is_within(EXCHANGE))
        ):
            run(tensors, *args, **kwargs)  # of another thread, or nested: a checkpoint recomputes its part
            return
        loaders.train()
        mark = clock.enter(BACKWARD)
        hooks = None
        try:
            is_in_group = getattr(groups._world, "_default_pg", None) is not None if groups else has_group()
            if is_in_group:
                first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
                is_compiled = compiler and getattr(compiler[0], "compiled_autograd_enabled", False)
                function = first.grad_fn if type(first) is tensor and not is_compiled else None
                if function is not None:
                    # As Tensor.register_hook does, without its handle, which takes three times as long.
                    hooks = first._backward_hooks
                    if hooks is None:
                        hooks = first._backward_hooks = OrderedDict()
                        function._register_hook_dict(first)
                    hooks[_KEY] = at_the_beginning
            run(tensors, *args, **kwargs)
        finally:
            clock.leave(mark, OTHER)
            if mark > 1:
                clock.turn(FORWARD, OPTIMIZER)  # in the closure of an optimizer's step
            if hooks is not None:
                hooks.pop(_KEY, None)
            if loading.workers is None:
                loaders.enter_loop()

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
