"""Measures parts of a TensorFlow graph, which runs in one call of Python: operations in the graph note the time.

A part, such as the wait for a batch, gets two operations, before and after it, that add to a sum. Only the emitting
thread reads the sums, so a step costs no call of Python. TensorFlow finds a sum by its name and creates it at its first
use: a function does not capture it, and a distribution strategy does not see it.

The sum of a part is a vector:

    seconds of the parts that have ended | begins of the open parts | number of open parts | ended parts | samples

so `number * now - begins` are the seconds of the open parts, and a window that ends while a graph waits is right too.

Nothing is added where TensorFlow does not support it: in a function that XLA compiles or that is vectorized, under a
distribution strategy, or with a cluster. A function gets the operations only if it reads an iterator that it has not
created, or exchanges gradients, so that the functions of a saved model have none.
"""

import importlib
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, MutableMapping, MutableSet, NamedTuple, Sequence, Tuple

tf: Any = importlib.import_module("tensorflow")
_ops: Any = importlib.import_module("tensorflow.python.framework.ops")
_seeds: Any = importlib.import_module("tensorflow.python.framework.random_seed")
_context: Any = importlib.import_module("tensorflow.python.eager.context")
_control_flow: Any = importlib.import_module("tensorflow.python.ops.control_flow_util")
_branches: Any = importlib.import_module("tensorflow.python.ops.control_flow_v2_func_graphs")

#: The parts. A step is one that takes no time.
READING, EVALUATION_READING, BACKWARD_PASS, EXCHANGING, STEP = "read", "evaluation_read", "backward", "exchange", "step"
_SIZE = 5
_SECONDS, _BEGINS, _OPEN, _ENDED, _SAMPLES = range(_SIZE)
_LATEST = 1 << 62  # an addition with an older step than that of the last reading is ignored
_BRANCHES = (_branches.WhileBodyFuncGraph, _branches.WhileCondFuncGraph, _branches.CondBranchFuncGraph)
_VECTORIZERS = ("parallel_for.control_flow_ops", "parallel_for.pfor")


class Part(NamedTuple):
    """Totals of the part with this name; ``number`` is that of the optimizer for STEP, else 0."""

    name: str
    number: int
    seconds: float
    ended: int
    samples: int


class Graphs:
    """The parts of the graphs of this process. ``is_evaluating``: whether a function that is traced now evaluates."""

    def __init__(self, is_evaluating: Callable[[], bool]) -> None:
        self._is_evaluating = is_evaluating
        self._epoch = time.time()
        self._lock = threading.Lock()
        self._sums: Dict[Tuple[str, int], List[float]] = {}  # as far as they are read
        self._measured: MutableSet[Any] = weakref.WeakSet()  # functions that read an iterator or exchange gradients
        self._training: MutableMapping[Any, Dict[int, int]] = weakref.WeakKeyDictionary()
        self._last_read: MutableMapping[Any, Dict[str, str]] = weakref.WeakKeyDictionary()
        self._last_target: MutableMapping[Any, List[str]] = weakref.WeakKeyDictionary()
        # TensorFlow before 2.5 derives seeds from the number of operations in a graph.
        self._keeps_seeds = hasattr(_seeds, "_graph_to_seed_dict")

    # --- While a function is traced ---

    def next(self, iterator: Any, read: Callable[[Any], Any]) -> Any:
        """The result of ``read(iterator)``, which creates the operation that waits for a batch."""
        resource = getattr(iterator, "_iterator_resource", None)
        graph = tf.compat.v1.get_default_graph()
        if resource is None or _is_created_in_graph(resource) or not self._can_add(graph):
            return read(iterator)
        self._measured.add(_function_of(graph))
        name = EVALUATION_READING if self._is_evaluating() else READING
        # Reads of one iterator wait for each other, and their times must not overlap.
        last = self._last_read.setdefault(graph, {})
        key = str(id(resource)) if isinstance(resource, _ops.EagerTensor) else resource.name
        before = [graph.get_operation_by_name(last[key])] if key in last else []
        with tf.control_dependencies(before):
            begin, begun = self._begin(name)
        with tf.control_dependencies([begun]):
            batch = read(iterator)
        tensors = _tensors(batch)
        with tf.control_dependencies(tensors):
            last[key] = self._end(name, begin, _count(batch), _samples(tensors)).name
        return batch

    def gradient(self, compute: Callable[[], Any], target: Any) -> Any:
        """The result of ``compute()``, which creates the operations of a backward pass from this target."""
        graph = tf.compat.v1.get_default_graph()
        self._mark(graph)
        gradients = compute()
        if self._can_add(graph):
            if _function_of(graph) in self._measured:
                self._between(BACKWARD_PASS, _tensors(target), _tensors(gradients))
            else:  # an exchange of the gradients may follow
                self._last_target[graph] = [tensor.op.name for tensor in _tensors(target) if tensor.graph is graph]
        return gradients

    def exchange(self, average: Callable[[], Any], gradients: Sequence[Any]) -> Any:
        """The result of ``average()``, which creates the operations that exchange these gradients.

        Its time is that from the last gradient to the last average; before, the backward pass still runs. On a GPU the
        operations of the backward pass end later than TensorFlow's host knows, so there is no such time.
        """
        graph = tf.compat.v1.get_default_graph()
        averages = average()
        if not self._can_add(graph):
            return averages
        self._measured.add(_function_of(graph))
        own = _tensors(list(gradients))
        targets = [graph.get_operation_by_name(name) for name in self._last_target.pop(graph, [])]
        if own and targets:
            self._between(BACKWARD_PASS, targets, own)
        if own and not _has_gpu():
            self._between(EXCHANGING, own, _tensors(averages))
        return averages

    def step(self, optimizer: int) -> None:
        """An optimizer, the one with this number, is applied here."""
        graph = tf.compat.v1.get_default_graph()
        function = _function_of(graph)
        self._mark(graph)
        if function in self._measured and self._can_add(graph):
            with _on_cpu():
                self._add(STEP, [0.0, 0.0, 0.0, 1.0, 0.0], optimizer)
        else:
            counts = self._training.setdefault(function, {})
            counts[optimizer] = counts.get(optimizer, 0) + 1

    def called(self, graph: Any) -> None:
        """The function that is traced calls this other function."""
        if graph in self._training:
            caller = tf.compat.v1.get_default_graph()
            self._mark(caller)
            counts = self._training[_function_of(caller)]
            for optimizer, count in self._training[graph].items():
                counts[optimizer] = counts.get(optimizer, 0) + count

    def _mark(self, graph: Any) -> None:
        """The graph trains, and those that contain it: a data set, too, can call a function for each batch."""
        while getattr(graph, "building_function", False):
            self._training.setdefault(graph, {})
            graph = graph.outer_graph

    # --- While functions run ---

    def trains(self, graph: Any) -> bool:
        return graph in self._training

    def steps(self, graph: Any) -> Dict[int, int]:
        """How often a call of this function applies each optimizer, except those that its graph counts."""
        return self._training.get(graph, {})

    def close(self) -> None:
        """A function has ended with an exception, and its open parts with it."""
        for key in list(self._sums):
            values = self._read(key)
            with self._lock:
                values[_BEGINS] = values[_OPEN] = 0.0

    def read(self) -> List[Part]:
        """From any thread. Raises an exception of TensorFlow if it cannot be read."""
        parts = []
        for key in list(self._sums):
            values = self._read(key)
            now = time.time() - self._epoch
            running = max(0.0, values[_OPEN] * now - values[_BEGINS]) if values[_OPEN] > 0 else 0.0
            parts.append(Part(key[0], key[1], values[_SECONDS] + running, int(values[_ENDED]), int(values[_SAMPLES])))
        return parts

    # --- The operations ---

    def _can_add(self, graph: Any) -> bool:
        return bool(
            self._keeps_seeds
            and getattr(graph, "building_function", False)
            and tf.compat.v1.executing_eagerly_outside_functions()
            and graph._get_control_flow_context() is None
            and not _control_flow.GraphOrParentsInXlaContext(graph)
            and not tf.distribute.has_strategy()
            and _context.context().get_server_def() is None
            and not _is_vectorized()
        )

    def _between(self, name: str, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Measure from the end of the operations ``before`` to the end of those ``after``."""
        if not before or not after:
            return
        with tf.control_dependencies(before):
            begin, begun = self._begin(name)
        with tf.control_dependencies([begun, *after]):
            self._end(name, begin, 1.0, 0.0)

    def _begin(self, name: str) -> Tuple[Any, Any]:
        with _on_cpu():
            begin = tf.timestamp() - self._epoch
            return begin, self._add(name, [0.0, begin, 1.0, 0.0, 0.0])

    def _end(self, name: str, begin: Any, count: Any, samples: Any) -> Any:
        with _on_cpu():
            end = tf.timestamp() - self._epoch
            return self._add(name, [end - begin, -begin, -1.0, count, samples])

    def _add(self, name: str, change: List[Any], number: int = 0) -> Any:
        key = (name, number)
        self._sums.setdefault(key, [0.0] * _SIZE)
        vector = tf.stack([tf.cast(one, tf.float64) for one in change])
        step = tf.constant(_LATEST, tf.int64)
        return tf.raw_ops.ResourceAccumulatorApplyGradient(handle=_handle(key), local_step=step, gradient=vector)

    def _read(self, key: Tuple[str, int]) -> List[float]:
        """The sum until now; TensorFlow's own begins again at zero."""
        values = self._sums[key]
        with self._lock, tf.init_scope(), _on_cpu():
            if tf.raw_ops.ResourceAccumulatorNumAccumulated(handle=_handle(key))._numpy():
                one = tf.constant(1, tf.int32)
                new = tf.raw_ops.ResourceAccumulatorTakeGradient(
                    handle=_handle(key), num_required=one, dtype=tf.float64
                )
                values[:] = [value + float(more) for value, more in zip(values, new._numpy())]
        return values


class _on_cpu:  # noqa: N801 (used as a function)
    """Operations on the CPU, with names that leave those of the script's operations as they are."""

    def __init__(self) -> None:
        self._scopes = (tf.device("CPU:0"), tf.name_scope("smdp_timing"))

    def __enter__(self) -> None:
        for scope in self._scopes:
            scope.__enter__()

    def __exit__(self, *exception: Any) -> None:
        for scope in reversed(self._scopes):
            scope.__exit__(*exception)


def _handle(key: Tuple[str, int]) -> Any:
    return tf.raw_ops.ResourceConditionalAccumulator(
        dtype=tf.float64,
        shape=[_SIZE],
        shared_name=f"smdp_timing/{key[0]}/{key[1]}",
        container="",
        reduction_type="SUM",
    )


def _function_of(graph: Any) -> Any:
    """The function that contains the graph of a loop or branch."""
    while isinstance(graph, _BRANCHES):
        graph = graph.outer_graph
    return graph


def _is_created_in_graph(resource: Any) -> bool:
    """Whether the function itself creates the iterator: such a function could be saved."""
    operation = None if isinstance(resource, _ops.EagerTensor) else resource.op
    return operation is not None and operation.type != "Placeholder"


def _tensors(value: Any) -> List[Any]:
    flat = tf.nest.flatten(value, expand_composites=True)
    return [one for one in flat if tf.is_tensor(one) and not isinstance(one, _ops.EagerTensor)]


def _count(batch: Any) -> Any:
    """The number of batches: 0 at the end of the data, where a loop of AutoGraph reads no batch."""
    with _on_cpu():
        return batch.has_value() if isinstance(batch, tf.experimental.Optional) else 1.0


def _samples(tensors: Sequence[Any]) -> Any:
    """The length of the first tensor that has one; 0 if there is none."""
    for tensor in tensors:
        if tensor.shape.rank:
            with _on_cpu():
                static = tensor.shape[0]
                return static if static is not None else tf.shape(tensor, out_type=tf.int64)[0]
    return 0.0


def _has_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


def _is_vectorized() -> bool:
    """Whether tf.vectorized_map or a Jacobian traces the function: it cannot vectorize these operations."""
    return any(name.endswith(_VECTORIZERS) for name in _callers())


def _callers() -> Iterator[str]:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back
