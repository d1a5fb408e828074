"""Measures the loaders of PyTorch: the wait for a batch, the fetches, and which batches train.

A batch trains if a backward pass follows it. Scripts fetch batches one ahead (Accelerate, timm), several before the
first pass (the Trainer, which accumulates gradients), or for an evaluation that turns gradients off only for the
model's call. So a batch is for evaluation if

- gradients are off when the loader delivers it, or when the script calls the wrapped model with it;
- its iterator has delivered three batches, or its last one, and no backward pass has followed any of them. The time
  that was counted as forward since its first batch is moved to evaluation.

If a backward pass follows after all, and no other batch waits for it, the iterator trains, and the time is moved back.
The script may have skipped most of these first batches, as a script that resumes within an epoch. So one of them counts
at once, one for each further pass before the next batch, and others only if the second group of batches before a pass
is as large.
"""

import functools
import importlib
import os
import queue
from types import ModuleType
from typing import Any, Callable, Iterator, Union, cast

from .after_import import after_import
from .clock import EVALUATION, FORWARD, INPUT, OPTIMIZER, OTHER, Clock, measured
from .common_hooks import replace
from .loader_work import Loading, Sender
from .native import MODULE
from .reading import Reading

torch: Any = importlib.import_module("torch")
is_grad_enabled = torch.is_grad_enabled

Prepare = Callable[[Any], Any]
_DEEPEST = 3  # levels of a batch in which a tensor is searched
_WIDEST = 4  # items of each level
_AHEAD = 2  # batches that an iterator of training may deliver before its first backward pass


class Source:
    """An iterator of a loader: what it has delivered since the last backward pass.

    ``workers``: its worker processes. ``forward``: the clock's total of FORWARD when it delivered the first of these
    batches. ``moved`` and ``evaluation``: what was moved to EVALUATION, and the clock's total of it then.
    ``first``: the batches before its first pass, while it is not known how many of them trained; ``used``: how many
    have counted, with ``each`` samples.
    """

    __slots__ = (
        *("workers", "batches", "samples", "passes"),
        *("forward", "moved", "evaluation", "has_trained", "evaluates"),
        *("first", "used", "each"),
    )

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.batches = self.samples = self.passes = 0
        self.forward = self.moved = self.evaluation = 0
        self.first = self.used = self.each = 0
        self.has_trained = self.evaluates = False


#: Source(workers): the native one if it is there.
new_source: Callable[[int], Source] = Source if MODULE is None else MODULE.Source


class Loaders:
    """All loaders of the process. The training thread calls the methods."""

    def __init__(self, clock: Clock, loading: Loading) -> None:
        self.clock = clock
        self._reading = Reading(clock, loading)
        self._has_queue = False  # whether another thread takes batches

    def measured_next(self, read: Callable[[Any], Any], prepare: Prepare) -> Callable[[Any], Any]:  # noqa: C901
        """``read``, which waits for the next batch of an iterator and returns it, with the wait as input. The iterator
        has ``_num_workers``. ``prepare`` is applied to the functions that replace it."""
        clock = self.clock

        @prepare
        @functools.wraps(read)
        def __next__(iterator: Any) -> Any:  # noqa: C901, N807, PLR0912
            if not clock.is_own_thread:
                return self._of_other_thread(read(iterator), iterator._num_workers)
            if clock.phase == INPUT:  # a loader within a loader
                return read(iterator)
            if not clock.is_at_base:
                clock.end_calls(OPTIMIZER)
            source = None
            if is_grad_enabled():
                source = getattr(iterator, "_smdp_source", None)
                if source is None:
                    source = iterator._smdp_source = new_source(iterator._num_workers)
                elif source.batches:
                    if source.passes != clock.passes:
                        if source.first and not source.has_trained:
                            self._use(source, clock.passes - source.passes)
                        source.batches = source.samples = 0
                        source.has_trained, source.evaluates = True, False
                    elif source.batches >= _AHEAD and not source.has_trained:
                        self._take_as_evaluation(source)
            base = OTHER  # at the end of the data, and after an exception
            mark = clock.enter(INPUT)
            try:
                batch = read(iterator)
                if source is None:
                    base = EVALUATION
                    clock.deliver(0)
                    return batch
                samples = samples_of(batch)
                if clock.left:
                    self._drop_left()
                if not source.batches:
                    source.forward = clock.total(FORWARD)
                source.batches += 1
                source.samples += samples
                source.passes = clock.passes
                if clock.workers < 0:
                    clock.workers = source.workers
                clock.last = source
                base = EVALUATION if source.evaluates else FORWARD
                clock.deliver(0 if source.evaluates else samples)
                return batch
            finally:
                clock.leave(mark, base)
                if base == OTHER and source is not None:
                    self._end(source)

        if MODULE is None:
            return __next__  # type: ignore[no-any-return]
        functions = read, __next__, self._end, samples_of, is_grad_enabled
        quick = cast(Any, clock).around_next(*functions, torch.Tensor)

        @prepare
        @functools.wraps(read)
        def native_next(iterator: Any) -> Any:
            return quick(iterator)

        return native_next  # type: ignore[no-any-return]

    def train(self) -> None:
        """A backward pass begins."""
        if self.clock.workers < 0:
            self.leave_loop()
        clock, source = self.clock, self.clock.last
        if source is not None and source.passes == clock.passes:
            if source.first:
                self._compare(source)
            if source.evaluates and not clock.has_waiting_samples:
                source.first, source.used, source.each = source.batches, 0, source.samples // source.batches
                self._use(source, 1)
                clock.move(EVALUATION, FORWARD, source.moved + clock.total(EVALUATION) - source.evaluation)
                source.evaluates = False
            if not source.evaluates:
                self.clock.workers = source.workers
        self.clock.left = 0
        clock.use_samples()

    def call_model(self, inputs: Any, kwargs: Any) -> bool:
        """The script calls the wrapped model outside of all other calls. Returns whether the call is an evaluation in
        itself: with gradients off, and without a batch of a loader."""
        clock, phase = self.clock, self.clock.phase
        if torch.is_grad_enabled():
            if phase == OTHER and self.clock.workers < 0:
                clock.deliver_unloaded(samples_of(inputs) or samples_of(kwargs))
            if phase in (OTHER, EVALUATION):
                clock.rest(FORWARD)
            return False
        last = self.clock.last
        if phase == FORWARD and last is not None and last.passes == clock.passes and not last.has_trained:
            self._take_as_evaluation(last)
            clock.rest(EVALUATION)
        return phase == OTHER

    def enter_loop(self) -> None:
        """A backward pass or an optimizer's step has ended."""
        if self.clock.workers < 0:
            self._reading.begin()

    def leave_loop(self) -> None:
        """A backward pass or an optimizer's step begins."""
        if self.clock.workers < 0:
            self._reading.end()

    def _end(self, source: Source) -> None:
        """The data has ended, or the loader has failed. Samples that no backward pass has used count if it follows
        before another batch: the script may have fetched them ahead."""
        self._drop_left()
        if source.first:
            self._compare(source)
        if source.batches and source.passes == self.clock.passes and not source.evaluates:
            self.clock.left = source.samples
            if not source.has_trained:
                self._move_to_evaluation(source)
        source.batches = source.samples = 0
        source.evaluates = False
        if self.clock.last is source:
            self.clock.last = None

    def _use(self, source: Source, batches: int) -> None:
        """So many of its first batches have trained; 0 or less: no more than before."""
        more = min(batches, source.first) - source.used
        if more > 0:
            self.clock.wait_with(more * source.each)
            source.used += more

    def _compare(self, source: Source) -> None:
        """Its second group of batches is complete, or the data has ended. A rest of the first group that is not larger
        was fetched ahead."""
        rest = source.first - source.used
        self._use(source, source.first if rest <= source.batches else source.batches)
        source.first = 0

    def _take_as_evaluation(self, source: Source) -> None:
        if not source.evaluates:
            source.evaluates = True
            self.clock.drop_samples(source.samples)
            self._move_to_evaluation(source)

    def _move_to_evaluation(self, source: Source) -> None:
        source.moved = self.clock.total(FORWARD) - source.forward
        source.evaluation = self.clock.total(EVALUATION)
        self.clock.move(FORWARD, EVALUATION, source.moved)

    def _drop_left(self) -> None:
        if self.clock.left:
            self.clock.drop_samples(self.clock.left)
            self.clock.left = 0

    def _of_other_thread(self, batch: Any, workers: int) -> Any:
        """A thread of the script takes the batches, and the training thread gets them from a queue."""
        if self.clock.owner is not None:
            self.clock.workers = workers
            self.clock.deliver(samples_of(batch) if torch.is_grad_enabled() else 0)
            if not self._has_queue:
                self._has_queue = True
                replace(queue.Queue, "get", functools.partial(measured, self.clock, INPUT))
        return batch


def install(loaders: Loaders, loading: Loading, prepare: Prepare) -> None:
    """``prepare`` is applied to the functions that replace torch's."""
    for function in (*vars(Loaders).values(), *vars(Source).values(), samples_of):
        if callable(function) and hasattr(function, "__code__"):
            prepare(function)
    module = importlib.import_module("torch.utils.data.dataloader")
    iterator: Any = module._BaseDataLoaderIter
    iterator.__next__ = loaders.measured_next(iterator.__next__, prepare)
    clock = loaders.clock
    replace(module.DataLoader, "__iter__", lambda function: prepare(measured(clock, INPUT, function)))
    measure_fetches(loading)
    _measure_models(loaders, prepare)
    after_import({"accelerate.data_loader": functools.partial(_measure_dispatcher, loaders, prepare)})


def samples_of(batch: Any, depth: int = _DEEPEST) -> int:
    """The length of the first tensor in the batch, which may be a tuple, list or mapping; 0 if there is none."""
    if isinstance(batch, torch.Tensor):
        return int(batch.size(0)) if batch.dim() else 0
    if depth == 0:
        return 0
    items: Any = ()
    if isinstance(batch, (tuple, list)):
        items = batch[:_WIDEST]
    elif hasattr(batch, "values") and hasattr(batch, "keys"):  # a mapping, or the batch of a tokenizer
        items = [value for value, _ in zip(batch.values(), range(_WIDEST))]
    return next(filter(None, (samples_of(item, depth - 1) for item in items)), 0)


def measure_fetches(meter: Union[Loading, Sender]) -> None:
    fetchers = importlib.import_module("torch.utils.data._utils.fetch")
    worker_info = importlib.import_module("torch.utils.data").get_worker_info
    here: Any = meter

    def in_child() -> None:
        nonlocal here
        here = here.in_child() if isinstance(here, Loading) else here

    os.register_at_fork(after_in_child=in_child)

    def measure(function: Any) -> Any:
        def fetch_here(fetcher: Any, index: Any) -> Any:
            own = here  # also in a child that is forked in the fetch
            # Only the workers of the rank's loaders count: the script may start other processes that load data.
            if own.is_sender and not (worker_info() and own.is_child_of_rank):
                return function(fetcher, index)
            start = own.begin()
            batches = 0
            try:
                batch = function(fetcher, index)
                batches = 1
                return batch
            finally:
                own.end(start, batches)

        run = fetch_here if here.is_sender else here.fetches_here().around(here.bytes_read, function, fetch_here)

        @functools.wraps(function)
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            return run(self, possibly_batched_index)

        return fetch

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        replace(getattr(fetchers, name, None), "fetch", measure)


def _measure_models(loaders: Loaders, prepare: Prepare) -> None:
    """A script may read its data without a DataLoader: its forward pass begins when it calls the wrapped model."""
    clock = loaders.clock

    def measure(function: Any) -> Any:
        @functools.wraps(function)
        def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
            if clock.phase == FORWARD and is_grad_enabled():  # a batch was delivered: most calls
                return function(self, *inputs, **kwargs)
            if clock.is_at_base and clock.is_own_thread and loaders.call_model(inputs, kwargs):
                mark = clock.enter(EVALUATION)
                try:
                    return function(self, *inputs, **kwargs)
                finally:
                    clock.leave(mark)
            return function(self, *inputs, **kwargs)

        return prepare(forward)

    def of_module(module: ModuleType) -> None:
        replace(getattr(module, "DistributedDataParallel", None), "forward", measure)

    after_import(
        {"torch.nn.parallel.distributed": of_module, "smdp_engine.first_generation.parallel": of_module},
    )


def _measure_dispatcher(loaders: Loaders, prepare: Prepare, module: ModuleType) -> None:
    """Accelerate's loader of a data set that is read in sequence: rank 0 loads, and sends each rank its part. The
    others wait for their batch in a broadcast."""

    following = loaders.measured_next(lambda parts: next(parts.batches), prepare)

    def measure(function: Any) -> Any:
        @functools.wraps(function)
        def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807
            parts = _Parts(function(self), getattr(self, "num_workers", 0))
            try:
                while True:
                    try:
                        batch = following(parts)
                    except StopIteration:
                        return
                    yield batch
            finally:
                parts.batches.close()

        return __iter__

    replace(getattr(module, "DataLoaderDispatcher", None), "__iter__", measure)


class _Parts:
    """An iteration of the dispatcher, as ``measured_next`` takes it."""

    def __init__(self, batches: Any, workers: int) -> None:
        self.batches = batches
        self._num_workers = workers
