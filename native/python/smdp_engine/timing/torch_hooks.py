"""Measures a training process of PyTorch: installs the hooks that move the clock from phase to phase.

| phase | hook |
|---|---|
| input | iter() and next() of a DataLoader; the base phase after a batch is forward, or evaluation without gradients |
| backward | torch.autograd.backward, which Tensor.backward calls; the base phase after it is other |
| forward | without a DataLoader: from the call of a DistributedDataParallel |
| copy | Tensor.to and Tensor.cuda (torch_copies.py) |
| exchange | the wait of a collective operation, and the end of a backward pass (torch_backward.py) |
| optimizer | the step of any torch.optim.Optimizer |
| checkpoint, logging | torch.save, torch.distributed.checkpoint; common_hooks.py |

The functions that replace torch's own have the same arguments, results and exceptions, and keep no reference to them.
"""

import functools
import importlib
import os
from types import ModuleType
from typing import Any, Dict, List, Union

from . import common_hooks, emission, torch_backward, torch_copies
from .after_import import after_import
from .clock import EVALUATION, EXCHANGE, FORWARD, INPUT, OPTIMIZER, OTHER, Clock, measured, measured_saves
from .common_hooks import replace
from .loading import Counters, Loading, Sender, sender_to_rank

torch: Any = importlib.import_module("torch")

_DEEPEST = 3  # levels of a batch in which a tensor is searched
_WIDEST = 4  # items of each level
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
            _measure_fetches(sender)
        return
    clock = own.clock
    for class_ in (Clock, Loading, Sender, Counters):
        for member in vars(class_).values():
            if callable(member) and hasattr(member, "__code__"):
                not_compiled(member)
    common_hooks.install(clock, not_compiled)
    _measure_fetches(own.loading)
    _measure_loaders(clock, own.loading)
    _measure_models(clock)
    torch_backward.install(clock, not_compiled)
    torch_copies.install(clock, not_compiled)
    _measure_exchanges(clock)
    _measure_optimizers(clock)
    _measure_saves(clock)
    _skip_in_compiler()
    own.add_source(_gpu_memory)


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


# --- The loader ---


def _measure_loaders(clock: Clock, loading: Loading) -> None:
    loader = importlib.import_module("torch.utils.data.dataloader")
    iterator: Any = loader._BaseDataLoaderIter
    following = iterator.__next__
    grad_enabled = torch.is_grad_enabled

    @functools.wraps(following)
    def __next__(self: Any) -> Any:  # noqa: N807
        is_training = grad_enabled()
        base = OTHER  # at the end of the data, and after an exception
        clock.end_calls(OPTIMIZER)
        mark = clock.enter(INPUT)
        try:
            batch = following(self)
            base = FORWARD if is_training else EVALUATION
            clock.deliver(samples_of(batch) if is_training else 0)
            if is_training:
                loading.workers = self._num_workers
            return batch
        finally:
            clock.leave(mark, base)
            if base == OTHER:
                clock.drop_samples()

    iterator.__next__ = not_compiled(__next__)
    replace(loader.DataLoader, "__iter__", lambda function: not_compiled(measured(clock, INPUT, function)))


def samples_of(batch: Any, depth: int = _DEEPEST) -> int:
    """The length of the first tensor in the batch, which may be a tuple, list or mapping; 0 if there is none."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() else 0
    if depth == 0:
        return 0
    items: Any = ()
    if isinstance(batch, (tuple, list)):
        items = batch[:_WIDEST]
    elif hasattr(batch, "values") and hasattr(batch, "keys"):  # a mapping, or the batch of a tokenizer
        items = [value for value, _ in zip(batch.values(), range(_WIDEST))]
    return next(filter(None, (samples_of(item, depth - 1) for item in items)), 0)


def _measure_fetches(meter: Union[Loading, Sender]) -> None:
    fetchers = importlib.import_module("torch.utils.data._utils.fetch")
    worker_info = importlib.import_module("torch.utils.data").get_worker_info
    here: Any = meter

    def in_child() -> None:
        nonlocal here
        here = here.in_child() if isinstance(here, Loading) else here

    os.register_at_fork(after_in_child=in_child)

    def measure(function: Any) -> Any:
        @functools.wraps(function)
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            # Only the rank and the workers of its loaders count: the script may start other processes that load data.
            if isinstance(here, Sender) and worker_info() is None:
                return function(self, possibly_batched_index)
            return here.fetch(function, self, possibly_batched_index)

        return fetch

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        replace(getattr(fetchers, name, None), "fetch", measure)


def _measure_models(clock: Clock) -> None:
    """A script may read its data without a DataLoader: its forward pass begins when it calls the wrapped model."""
    grad_enabled = torch.is_grad_enabled

    def measure(function: Any) -> Any:
        @functools.wraps(function)
        def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
            if clock.is_idle:
                if grad_enabled():
                    clock.deliver_unloaded(samples_of(inputs) or samples_of(kwargs))
                    clock.rest(FORWARD)
                else:
                    mark = clock.enter(EVALUATION)
                    try:
                        return function(self, *inputs, **kwargs)
                    finally:
                        clock.leave(mark)
            return function(self, *inputs, **kwargs)

        return not_compiled(forward)

    def of_module(module: ModuleType) -> None:
        replace(getattr(module, "DistributedDataParallel", None), "forward", measure)

    after_import(
        {"torch.nn.parallel.distributed": of_module, "smdp_engine.first_generation.parallel": of_module},
    )


# --- Exchanges, optimizers, checkpoints ---


def _measure_exchanges(clock: Clock) -> None:
    dist = torch.distributed
    if not dist.is_available():
        return

    def exchange(function: Any) -> Any:
        return not_compiled(measured(clock, EXCHANGE, function))

    c10d = importlib.import_module("torch._C._distributed_c10d")
    replace(c10d.Work, "wait", exchange)
    # The engine completes small operations on CPUs in the call itself.
    for name in _COLLECTIVES:
        replace(c10d.ProcessGroup, name, exchange)
    # DistributedDataParallel's copies of buffers before a forward pass.
    for owner in (dist, dist.distributed_c10d):
        replace(owner, "_broadcast_coalesced", exchange)


def _measure_optimizers(clock: Clock) -> None:
    optimizers = importlib.import_module("torch.optim.optimizer")
    marks: Dict[int, int] = {}

    def before(optimizer: Any, *_: Any) -> None:
        if clock.is_own_thread:
            marks[id(optimizer)] = clock.enter(OPTIMIZER)

    def after(optimizer: Any, *_: Any) -> None:
        mark = marks.pop(id(optimizer), None)
        if mark is not None:
            clock.leave(mark, OTHER)
            clock.count_step(id(optimizer))

    if hasattr(optimizers, "register_optimizer_step_post_hook"):  # since torch 2.0
        optimizers.register_optimizer_step_pre_hook(not_compiled(before))
        optimizers.register_optimizer_step_post_hook(not_compiled(after))
    else:
        _wrap_steps(optimizers.Optimizer, before, after)


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
            before(self)
            result = step(self, *args, **kwargs)
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
