"""Measures the backward pass, and within it the time that only waits for the exchange of gradients.

DistributedDataParallel waits for its buckets at the end of the pass: when all gradients are ready, it queues a final
callback of the autograd engine, which waits. Final callbacks run in the order in which they are queued. The hook below
queues one at the beginning of the pass, so it runs first: when all gradients are computed. From there to the end of the
pass is time of the exchange. The first generation's DistributedDataParallel and FSDP wait in the same place.
"""

import functools
import importlib
import sys
from typing import Any, Callable

from .clock import BACKWARD, EXCHANGE, FORWARD, OPTIMIZER, OTHER, Clock

torch: Any = importlib.import_module("torch")


def install(clock: Clock, begin: Callable[[], None], end: Callable[[], None], prepare: Callable[[Any], Any]) -> None:
    """``begin`` and ``end`` are called before and after each backward pass of the training thread, and ``prepare`` is
    applied to the function that replaces torch.autograd.backward."""
    run = torch.autograd.backward
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback
    dist = torch.distributed
    is_exchanging = dist.is_initialized if dist.is_available() else bool

    def all_gradients_are_ready() -> None:
        clock.turn(BACKWARD, EXCHANGE)

    def at_the_beginning(_: Any) -> None:
        queue_callback(all_gradients_are_ready)

    def watch(tensors: Any) -> Any:
        """Register the hook on the first tensor; the handle to remove it, None without a hook."""
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if type(first) is not torch.Tensor or not first.requires_grad or _is_compiled():
            return None
        return first.register_hook(at_the_beginning)

    @functools.wraps(run)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        is_own = clock.is_own_thread
        if not is_own:
            clock.adopt()
            is_own = clock.is_own_thread
        if not is_own or (not clock.is_at_base and (clock.is_within(BACKWARD) or clock.is_within(EXCHANGE))):
            run(tensors, *args, **kwargs)  # of another thread, or nested: a checkpoint recomputes its part
            return
        begin()
        mark = clock.enter(BACKWARD)
        handle = None
        try:
            handle = watch(tensors) if is_exchanging() else None
            run(tensors, *args, **kwargs)
        finally:
            clock.leave(mark, OTHER)
            if not clock.is_at_base:
                clock.turn(FORWARD, OPTIMIZER)  # in the closure of an optimizer's step
            if handle is not None:
                handle.remove()
            end()

    torch.autograd.backward = prepare(backward)


def _is_compiled() -> bool:
    """Whether torch.compile traces the backward passes: it does not support every final callback."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiled, "compiled_autograd_enabled", False))
