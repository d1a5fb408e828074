"""Measures a training process of PyTorch: installs the hooks that move the clock from phase to phase.

| phase | hook |
|---|---|
| input | iter() and next() of a DataLoader; the base phase after a batch is forward or evaluation (torch_loaders.py) |
| forward | without a DataLoader: from the call of a DistributedDataParallel; in the closure of an optimizer's step |
| backward | torch.autograd.backward, which Tensor.backward calls; the base phase after it is other |
| copy | Tensor.to and Tensor.cuda (torch_copies.py) |
| exchange | the wait of a collective operation, and the end of a backward pass (torch_backward.py) |
| optimizer | the step of any torch.optim.Optimizer |
| checkpoint, logging | torch.save, torch.distributed.checkpoint; common_hooks.py; libraries.py |

The functions that replace torch's own have the same arguments, results and exceptions, and keep no reference to them.
"""

import functools
import importlib
from types import ModuleType
from typing import Any, Dict, List, Optional, Tuple, cast

from . import common_hooks, emission, libraries, torch_backward, torch_copies, torch_loaders
from .after_import import after_import
from .clock import EXCHANGE, FORWARD, INPUT, OPTIMIZER, OTHER, Clock, measured, measured_saves
from .common_hooks import replace
from .exchange_waits import Waiting
from .loader_work import BytesRead, Counters, Fetches, Loading, Sender, sender_to_rank
from .native import MODULE

torch: Any = importlib.import_module("torch")

_COLLECTIVES = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "barrier", "monitored_barrier"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced", "gather", "scatter"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base"),
    *("send", "recv", "recv_anysource", "all_gather_single", "all_gather_single_coalesced", "all_to_all_single"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
)
_not_compiled: List[Any] = []
_skip_code: List[Any] = []  # torch.compile's function, once the script has imported torch.compile


def install() -> None:
    """Measure this process, if it is a rank of a job, or measure its fetches, if it is a worker of a rank's loader.

    Raises:
        ValueError: SMDP_TIMING_S is not a number.
    """
    own = emission.start()
    if own is None:
        sender = sender_to_rank() if emission.timing_period() else None
        if sender is not None:
            torch_loaders.measure_fetches(sender)
        return
    clock = own.clock
    for class_ in (Clock, Loading, Sender, Fetches, BytesRead, Counters):
        for member in vars(class_).values():
            if callable(member) and hasattr(member, "__code__"):
                not_compiled(member)
    common_hooks.install(clock, not_compiled)
    libraries.install(clock, not_compiled)
    loaders = torch_loaders.Loaders(clock, own.loading)
    torch_loaders.install(loaders, own.loading, not_compiled)
    torch_backward.install(clock, loaders, not_compiled)
    torch_copies.install(clock, not_compiled)
    _measure_exchanges(clock)
    _measure_optimizers(clock, loaders)
    _measure_saves(clock)
    _skip_in_compiler()
    own.add_source(_gpu_memory)
    own.add_source(Waiting(clock))


def not_compiled(function: Any) -> Any:
    """Have torch.compile call the function and not trace it. It still compiles what the function calls."""
    function._torchdynamo_disable = True
    if function not in _not_compiled:
        _not_compiled.append(function)
    for skip in _skip_code:
        skip(function.__code__)
    return function


def _skip_in_compiler() -> None:
    """Have torch.compile, if the script uses it, run the functions as they are where the script calls them."""

    def skip(module: ModuleType) -> None:
        _skip_code[:] = [module.skip_code] if hasattr(module, "skip_code") else []  # since torch 2.1
        for function in list(_not_compiled):
            not_compiled(function)

    after_import({"torch._dynamo.eval_frame": skip})


# --- Exchanges, optimizers, checkpoints ---


def _measure_exchanges(clock: Clock) -> None:
    dist = torch.distributed
    if not dist.is_available():
        return

    def exchange(function: Any) -> Any:
        # A loader that exchanges its batches waits for input.
        return not_compiled(measured(clock, EXCHANGE, function, INPUT))

    c10d = importlib.import_module("torch._C._distributed_c10d")
    replace(c10d.Work, "wait", exchange)
    # The engine completes small operations on CPUs in the call itself.
    for name in _COLLECTIVES:
        replace(c10d.ProcessGroup, name, exchange)
    # DistributedDataParallel's copies of buffers before a forward pass.
    for owner in (dist, dist.distributed_c10d):
        replace(owner, "_broadcast_coalesced", exchange)


def _measure_optimizers(clock: Clock, loaders: torch_loaders.Loaders) -> None:
    optimizers = importlib.import_module("torch.optim.optimizer")
    if MODULE is None:
        hooks = _optimizer_hooks(clock, loaders)
    else:
        with_closure = functools.partial(_with_measured_closure, clock)
        before, after = cast(Any, clock).optimizer_hooks(loaders.leave_loop, loaders.enter_loop, with_closure)
        hooks = _in_python(before), _in_python(after)
    before, after = map(not_compiled, hooks)
    if hasattr(optimizers, "register_optimizer_step_post_hook"):  # since torch 2.0
        optimizers.register_optimizer_step_pre_hook(before)
        optimizers.register_optimizer_step_post_hook(after)
    else:
        _wrap_steps(optimizers.Optimizer, before, after)


def _in_python(native: Any) -> Any:
    """The native function as a function in Python: torch.compile skips it, and would warn of the native one."""

    def hook(*arguments: Any) -> Any:
        return native(*arguments)

    return hook


def _optimizer_hooks(clock: Clock, loaders: torch_loaders.Loaders) -> Tuple[Any, Any]:
    """What torch calls before and after each optimizer's step. The native module has the same."""
    marks: Dict[int, int] = {}

    def before(optimizer: Any, args: Any, kwargs: Any) -> Optional[Tuple[Any, Any]]:
        if not clock.is_own_thread:
            return None
        if clock.workers < 0:
            loaders.leave_loop()
        marks[id(optimizer)] = clock.enter(OPTIMIZER)
        return _with_measured_closure(clock, args, kwargs) if len(args) > 1 or kwargs else None

    def after(optimizer: Any, *_: Any) -> None:
        mark = marks.pop(id(optimizer), None)
        if mark is not None:
            clock.leave(mark, OTHER)
            clock.count_step(id(optimizer))
            if clock.workers < 0:
                loaders.enter_loop()

    return before, after


def _with_measured_closure(clock: Clock, args: Any, kwargs: Any) -> Optional[Tuple[Any, Any]]:
    """The arguments of ``step(self, closure)`` with a closure whose time is not the optimizer's, such as Lightning's
    training step; None without a closure."""

    def measure(closure: Any) -> Any:
        function = measured(clock, FORWARD, closure)
        function._torchdynamo_disable = True
        return function

    if len(args) > 1 and callable(args[1]):
        return (args[0], measure(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": measure(kwargs["closure"])}
    return None


def _wrap_steps(base: Any, before: Any, after: Any) -> None:
    """Wrap the step of each class of optimizers when the first one of it is created."""
    create = base.__init__

    @functools.wraps(create)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        create(self, *args, **kwargs)
        step = type(self).step
        if getattr(step, "_smdp_measured", False):
            return

        @functools.wraps(step)
        def measured_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            own, named = before(self, (self, *args), kwargs) or ((self, *args), kwargs)
            result = step(*own, **named)
            after(self)
            return result

        measured_step._smdp_measured = True  # type: ignore[attr-defined]
        type(self).step = measured_step

    base.__init__ = __init__


def _measure_saves(clock: Clock) -> None:
    def saves(function: Any) -> Any:
        return not_compiled(measured_saves(clock, function))

    torch.save = torch.serialization.save = saves(torch.save)

    def distributed(module: ModuleType) -> None:
        for name in ("save", "async_save", "save_state_dict"):
            replace(module, name, saves)

    after_import({"torch.distributed.checkpoint": distributed})


def _gpu_memory() -> Dict[str, int]:
    """The most that torch has allocated on this process's GPUs."""
    cuda = torch.cuda
    if not cuda.is_initialized():  # no other question: it could initialize CUDA, and forked processes then fail
        return {}
    peak = sum(int(cuda.max_memory_allocated(device)) for device in range(cuda.device_count()))
    return {"gpu_memory_bytes": peak}
