"""The custom operations with their gradients, and the names that match the ranks' calls.

A graph does not define the order of its operations, so each operation has a name that is the same on all ranks. The
name consists of the kind of operation, the function that creates it, the types of that function's arguments, and the
number of the operation in that function. It does not depend on how often, or from where, a rank traces the function. It
does not include the shapes of arguments, which may differ between ranks, for example in the last batch.

Two calls of the same function must not exchange tensors at the same time, since their operations have the same names. A
variable orders them: each call writes it, and each operation runs between two reads of it, so TensorFlow runs the calls
one after the other. Eager operations run in program order and share a name.
"""

import collections
import functools
import importlib
import itertools
import re
import weakref
import zlib
from dataclasses import dataclass
from typing import Any, Callable, Counter, List, MutableMapping, MutableSet, NamedTuple, Sequence, Tuple

from . import job
from .library import operations

tf: Any = importlib.import_module("tensorflow")
_control_flow: Any = importlib.import_module("tensorflow.python.ops.control_flow_util")
_branches: Any = importlib.import_module("tensorflow.python.ops.control_flow_v2_func_graphs")

DEFAULT_BUFFER_BYTES = 25 * 1024 * 1024
_LOOPS = (_branches.WhileBodyFuncGraph, _branches.WhileCondFuncGraph)
_BRANCHES = (*_LOOPS, _branches.CondBranchFuncGraph)
# TensorFlow's names for the forward and backward parts of a function; the number differs between ranks.
_HALF = re.compile(r"__(?:forward|backward)_(.*)_\d+")
_UNSAVEABLE = (
    "smdp: it exchanges tensors with the other ranks of the job, which a saved model does not have: do not save "
    "functions that train"
)
_places: MutableMapping[Any, Counter[str]] = weakref.WeakKeyDictionary()
_traces: MutableMapping[Any, int] = weakref.WeakKeyDictionary()
_numbers = itertools.count(1)
_ordered: MutableSet[Any] = weakref.WeakSet()  # graphs whose calls are ordered


def name_of(what: str) -> str:
    """The name of an operation that is created now."""
    place = place_of(what)
    return f"{what}/{place}" if place else what


def place_of(counted: str) -> str:
    """The current function and the number of the next ``counted`` in it; empty in eager mode."""
    if tf.executing_eagerly():
        return ""
    graph = tf.compat.v1.get_default_graph()
    _refuse_xla(graph)
    _refuse_what_a_session_repeats(graph)
    function = _function_of(graph)
    name = getattr(function, "name", "graph")
    while _HALF.fullmatch(name):
        name = _HALF.sub(r"\1", name)
    counts = _places.setdefault(function, collections.Counter())
    counts[counted] += 1
    return f"{name}/{_digest_of_arguments(function):08x}#{counts[counted]}"


def trace_number() -> int:
    """The number of the current function's graph in this process. Other ranks may give it another number."""
    return _traces.setdefault(_function_of(tf.compat.v1.get_default_graph()), next(_numbers))


def _function_of(graph: Any) -> Any:
    """The function that contains the graph of a loop or branch."""
    while isinstance(graph, _BRANCHES):
        graph = graph.outer_graph
    return graph


def _digest_of_arguments(function: Any) -> int:
    signature: Any = getattr(function, "structured_input_signature", None) or ((), {})
    types = [
        spec.dtype.name
        for spec in tf.nest.flatten(signature)
        if isinstance(spec, tf.TypeSpec) and hasattr(spec, "dtype")
    ]
    return zlib.crc32(" ".join(types).encode())


@functools.lru_cache(maxsize=None)
def _turn() -> Any:
    with tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="smdp_turn")


def _in_turn(create: Callable[[], Any]) -> Any:
    """The result of ``create``, ordered after earlier calls of functions and before later ones. It also waits for the
    function's input data, so a step without data exchanges nothing."""
    if tf.executing_eagerly():
        return create()
    graph = tf.compat.v1.get_default_graph()
    with tf.init_scope():
        turn = _turn() if tf.executing_eagerly() else None
    if turn is None:  # a graph of a session, without calls
        return create()
    if graph not in _ordered:
        _ordered.add(graph)
        _function_of(graph).mark_as_unsaveable([_UNSAVEABLE])
        turn.assign_add(0)
    with tf.control_dependencies([turn.read_value(), *_data_of(graph)]):
        result = create()
    with tf.control_dependencies(tf.nest.flatten(result)):
        turn.read_value()
    return result


class _Data(NamedTuple):
    """The input data of a graph. It stores a name, since a reference to an operation would keep the graph alive."""

    scanned: int = 0  # the number of operations
    gate: str = ""  # the operation that runs when the data are available


_data: MutableMapping[Any, _Data] = weakref.WeakKeyDictionary()


def _data_of(graph: Any) -> List[Any]:
    """The operation, if any, that runs when the function's arguments and elements of data sets are available."""
    before = _data.get(graph, _Data())
    operations_of_graph = graph.get_operations()
    new = [operation for operation in operations_of_graph[before.scanned :] if _is_datum(operation)]
    gate = before.gate
    if new:
        with tf.control_dependencies([*new, *([graph.get_operation_by_name(gate)] if gate else [])]):
            gate = tf.no_op("smdp_data").name
    _data[graph] = _Data(len(operations_of_graph), gate)
    return [graph.get_operation_by_name(gate)] if gate else []


def _is_datum(operation: Any) -> bool:
    if operation.type == "Placeholder":
        return operation.outputs[0].dtype not in (tf.resource, tf.variant)
    return operation.type.startswith("IteratorGetNext") and operation._get_control_flow_context() is None


@dataclass(frozen=True)
class Place:
    """The place of gradients in the list of gradients that share buffers."""

    index: int = 0  # of the first gradient
    count: int = 1  # of gradients in the list
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    described: str = ""  # type and shape of each gradient in the list, separated by spaces
    among: str = ""  # lists of this name must be the same on all ranks; checked at the first use of a lane
    trace: int = 0  # lists of other traces in the same lane may have other sizes


_ALONE = Place()
_OF_ENGINE = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
#: The types of tensors that can be reduced, and the type in which the engine reduces them.
_SENT_AS = {**{tf.as_dtype(one): tf.as_dtype(one) for one in _OF_ENGINE}, tf.uint16: tf.int32, tf.uint32: tf.int64}


def all_reduce(tensors: Sequence[Any], *, lane: str, reduction: str, place: Place = _ALONE) -> List[Any]:
    """Reduce consecutive gradients of a lane's list.

    Raises:
        TypeError: a type cannot be reduced.
    """
    for dtype in [tensor.dtype.base_dtype for tensor in tensors]:
        if dtype not in _SENT_AS:
            accepted = ", ".join(one.name for one in _SENT_AS)
            raise TypeError(f"smdp: {dtype.name} cannot be reduced, only {accepted}: cast the tensor first")
    values = [tf.cast(tensor, _SENT_AS[tensor.dtype.base_dtype]) for tensor in tensors]
    reduced = _in_turn(
        lambda: operations().smdp_all_reduce(values=values, lane=lane, reduction=reduction, **vars(place))
    )
    return [tf.cast(value, tensor.dtype) for value, tensor in zip(reduced, tensors)]


def broadcast(tensors: Sequence[Any], *, sequence: str, root: int) -> List[Any]:
    if not 0 <= root < job.size():
        raise ValueError(f"root_rank must be a rank of the job, 0 to {job.size() - 1}, found {root}")
    return list(_in_turn(lambda: operations().smdp_broadcast(values=list(tensors), sequence=sequence, root=root)))


def all_gather(tensor: Any, *, sequence: str) -> Tuple[Any, Any]:
    """The ranks' tensors, concatenated along the first dimension, and the number of rows of each rank."""
    gathered = _in_turn(lambda: operations().smdp_all_gather(value=tensor, sequence=sequence))
    return gathered.gathered, gathered.rows


def barrier(*, sequence: str) -> Any:
    return _in_turn(lambda: operations().smdp_barrier(sequence=sequence))


def left_to_run(operation: Any) -> Any:
    """The operation in a graph of a session; None where it runs without a session."""
    with tf.init_scope():
        return None if tf.executing_eagerly() else operation


def _refuse_xla(graph: Any) -> None:
    if _control_flow.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(
            "smdp: XLA cannot compile the exchange of gradients, which runs on the hosts' CPUs: remove "
            "jit_compile=True (for a Keras model: model.compile(..., jit_compile=False)), or use it only for "
            "functions that compute the loss and do not exchange gradients"
        )


def _refuse_what_a_session_repeats(graph: Any) -> None:
    """Raises NotImplementedError in a loop or a function in a graph of a session, which does not order repetitions."""
    with tf.init_scope():
        if tf.executing_eagerly():
            return
    looped = _control_flow.GetContainingWhileContext(graph._get_control_flow_context()) is not None
    while isinstance(graph, _BRANCHES):
        looped = looped or isinstance(graph, _LOOPS)
        graph = graph.outer_graph
    if looped or getattr(graph, "outer_graph", None) is not None:
        raise NotImplementedError(
            "smdp: a session does not order the iterations of a loop or the calls of a tf.function: "
            "exchange tensors outside of them"
        )


def _or_zeros(gradients: Sequence[Any], op: Any) -> List[Any]:
    return [
        tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, value in zip(gradients, op.inputs)
    ]


def _text(op: Any, attribute: str) -> str:
    value = op.get_attr(attribute)
    return str(value.decode() if isinstance(value, bytes) else value)


@tf.RegisterGradient("SmdpAllReduce")  # type: ignore[untyped-decorator]
def _all_reduce_gradient(op: Any, *gradients: Any) -> List[Any]:
    reduction = _text(op, "reduction")
    if reduction not in {"average", "sum"}:
        raise NotImplementedError(f"smdp: {reduction} over ranks has no gradient")
    # Each one separately: other gradients of the list may have no gradient.
    name = name_of(f"{_text(op, 'lane')}/gradient/{op.get_attr('index')}")
    values = _or_zeros(gradients, op)
    return [all_reduce([value], lane=f"{name}/{place}", reduction=reduction)[0] for place, value in enumerate(values)]


@tf.RegisterGradient("SmdpBroadcast")  # type: ignore[untyped-decorator]
def _broadcast_gradient(op: Any, *gradients: Any) -> List[Any]:
    values = _or_zeros(gradients, op)
    sums = [all_reduce([value], lane=name_of("broadcast/gradient"), reduction="sum")[0] for value in values]
    if job.rank() == op.get_attr("root"):
        return sums
    with tf.control_dependencies(sums):  # this rank does not use them, but the root waits for them
        return [tf.zeros_like(total) for total in sums]


@tf.RegisterGradient("SmdpAllGather")  # type: ignore[untyped-decorator]
def _all_gather_gradient(op: Any, gradient: Any, _rows: Any) -> Any:
    total = all_reduce([tf.convert_to_tensor(gradient)], lane=name_of("allgather/gradient"), reduction="sum")[0]
    return tf.split(total, op.outputs[1], num=job.size())[job.rank()]
