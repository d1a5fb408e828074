"""Measures the backward pass, and within it the time that only waits for the exchange of gradients.

DistributedDataParallel waits for its buckets at the end of the pass: when all gradients are ready, it queues a final
callback of the autograd engine, which waits. Final callbacks run in the order in which they are queued. The hook below
queues one at the beginning of the pass, so it runs first: when all gradients are computed. From there to the end of the
pass is time of the exchange. The first generation's DistributedDataParallel and FSDP wait in the same place.
"""

import functools
import importlib
import sys
from collections import OrderedDict
from typing import Any, Callable

from .clock import BACKWARD, EXCHANGE, FORWARD, OPTIMIZER, OTHER, Clock
from .loading import Loading
from .torch_loaders import Loaders

torch: Any = importlib.import_module("torch")

_KEY = "smdp"  # those of Tensor.register_hook are numbers


def install(clock: Clock, loaders: Loaders, loading: Loading, prepare: Callable[[Any], Any]) -> None:
    """``prepare`` is applied to the function that replaces torch.autograd.backward."""
    run = torch.autograd.backward
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback
    is_exchanging = _has_group()
    all_gradients_are_ready = functools.partial(clock.turn, BACKWARD, EXCHANGE)

    def at_the_beginning(_: Any) -> None:
        queue_callback(all_gradients_are_ready)

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
            hooks = _watch(tensors, at_the_beginning) if is_exchanging() else None
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


def _watch(tensors: Any, hook: Callable[[Any], None]) -> Any:
    """Register the hook on the first tensor. Returns the tensor's hooks, with this one at _KEY; None without it.

    As Tensor.register_hook does, without its handle, which takes three times as long as all else here.
    """
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if type(first) is not torch.Tensor or not first.requires_grad or _is_compiled():
        return None
    hooks = first._backward_hooks
    if hooks is None:
        hooks = first._backward_hooks = OrderedDict()
        function = first.grad_fn
        if function is not None:
            function._register_hook_dict(first)
    hooks[_KEY] = hook
    return hooks


def _has_group() -> Callable[[], bool]:
    """A function that returns whether the process has a default group, and so may exchange gradients."""
    dist = torch.distributed
    if not dist.is_available():
        return bool
    groups = dist.distributed_c10d
    if not hasattr(getattr(groups, "_world", None), "default_pg"):  # before torch 2.0
        return dist.is_initialized  # type: ignore[no-any-return]
    return lambda: groups._world.default_pg is not None  # as is_initialized, which calls two functions more


def _is_compiled() -> bool:
    """Whether torch.compile traces the backward passes: it does not support every final callback."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    return compiled is not None and bool(getattr(compiled, "compiled_autograd_enabled", False))
