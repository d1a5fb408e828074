"""The custom operations with their gradients, and the names under which the ranks' calls meet.

In a graph nothing says in which order operations run, so each has a name of its own: what it is, the function that
it is made in and the types of that function's arguments (their shapes may differ between ranks, as the last batch's
do), and the how manieth such one of the function it is. However often, and from wherever, the ranks trace their
functions, these agree. Calls of functions that exchange something run in turn, so that two of one name do not meet
under its names: a variable that each of them writes, and of which each operation is between two reads, has TensorFlow
order them. Eager operations run in the order of the program and share a name.
"""

import collections
import functools
import importlib
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
# What TensorFlow calls the two halves of a function of which gradients are computed; the number is its own.
_HALF = re.compile(r"__(?:forward|backward)_(.*)_\d+")
_UNSAVEABLE = (
    "smdp: it exchanges tensors with the other ranks of the job, which a saved model has none of: keep functions that "
    "train out of what you save"
)
_places: MutableMapping[Any, Counter[str]] = weakref.WeakKeyDictionary()
_taking_turns: MutableSet[Any] = weakref.WeakSet()


def name_of(what: str) -> str:
    """A name for an operation that is made now."""
    place = place_of(what)
    return f"{what}/{place}" if place else what


def place_of(counted: str) -> str:
    """Where an operation or a list of them is made now, and the how manieth ``counted`` there it is; empty eagerly."""
    if tf.executing_eagerly():
        return ""
    graph = tf.compat.v1.get_default_graph()
    _refuse_xla(graph)
    _refuse_what_a_session_repeats(graph)
    function = _function_of(graph)
    name = getattr(function, "name", "graph")
    while _HALF.fullmatch(name):
        name = _HALF.sub(r"\1", name)
    seen = _places.setdefault(function, collections.Counter())
    seen[counted] += 1
    return f"{name}/{_digest_of_arguments(function):08x}#{seen[counted]}"


def _function_of(graph: Any) -> Any:
    """The function whose loops and branches the graph is in."""
    while isinstance(graph, _BRANCHES):
        graph = graph.outer_graph
    return graph


def _digest_of_arguments(function: Any) -> int:
    given, named = getattr(function, "structured_input_signature", None) or ((), {})
    types = [
        one.dtype.name
        for one in tf.nest.flatten((given, named))
        if isinstance(one, tf.TypeSpec) and hasattr(one, "dtype")
    ]
    return zlib.crc32(" ".join(types).encode())


@functools.lru_cache(maxsize=None)
def _turn() -> Any:
    with tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="smdp_turn")


def _in_turn(make: Callable[[], Any]) -> Any:
    """What ``make`` makes, exchanged when the calls before it are over, before those after it begin, and once the
    function's data are there: a step whose data have ended has then given nothing."""
    if tf.executing_eagerly():
        return make()
    graph = tf.compat.v1.get_default_graph()
    with tf.init_scope():
        turn = _turn() if tf.executing_eagerly() else None
    if turn is None:  # a graph that a session runs, without calls
        return make()
    if graph not in _taking_turns:
        _taking_turns.add(graph)
        _function_of(graph).mark_as_unsaveable([_UNSAVEABLE])
        turn.assign_add(0)
    with tf.control_dependencies([turn.read_value(), *_data_of(graph)]):
        made = make()
    with tf.control_dependencies(tf.nest.flatten(made)):
        turn.read_value()
    return made


class _Data(NamedTuple):
    """Of a graph, by name, since what is held here must not hold the graph."""

    seen: int = 0  # operations
    gate: str = ""  # the operation that runs when the data are there


_data: MutableMapping[Any, _Data] = weakref.WeakKeyDictionary()


def _data_of(graph: Any) -> List[Any]:
    """What runs when arguments of the function and elements of data sets that it takes are there."""
    before = _data.get(graph, _Data())
    operations_of_graph = graph.get_operations()
    new = [one for one in operations_of_graph[before.seen :] if _is_datum(one)]
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
    """Of gradients in the list of those that share buffers."""

    index: int = 0  # of the first of them
    count: int = 1  # of the list
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    described: str = ""  # each gradient of the list, with a blank between two
    among: str = ""  # lists of this name are to be the same on all ranks; compared when a lane is first used


_ALONE = Place()


def all_reduce(tensors: Sequence[Any], *, lane: str, reduction: str, place: Place = _ALONE) -> List[Any]:
    """Reduces gradients that follow each other in the list of a lane."""
    reduced = _in_turn(
        lambda: operations().smdp_all_reduce(values=list(tensors), lane=lane, reduction=reduction, **vars(place))
    )
    return list(reduced)


def broadcast(tensors: Sequence[Any], *, sequence: str, root: int) -> List[Any]:
    if not 0 <= root < job.size():
        raise ValueError(f"root_rank must be a rank of the job, 0 to {job.size() - 1}, found {root}")
    return list(_in_turn(lambda: operations().smdp_broadcast(values=list(tensors), sequence=sequence, root=root)))


def all_gather(tensor: Any, *, sequence: str) -> Tuple[Any, Any]:
    """The ranks' tensors, one after the other along the first dimension, and how many rows are whose."""
    gathered = _in_turn(lambda: operations().smdp_all_gather(value=tensor, sequence=sequence))
    return gathered.gathered, gathered.rows


def barrier(*, sequence: str) -> Any:
    return _in_turn(lambda: operations().smdp_barrier(sequence=sequence))


def left_to_run(operation: Any) -> Any:
    """The operation where a session runs the graph, and nothing where it has run or runs by itself."""
    with tf.init_scope():
        return None if tf.executing_eagerly() else operation


def _refuse_xla(graph: Any) -> None:
    if _control_flow.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(
            "smdp: gradients are exchanged by the hosts' CPUs, which XLA cannot compile into a step: leave out "
            "jit_compile=True (of a Keras model: model.compile(..., jit_compile=False)), or give it to the "
            "functions that compute the loss and not to the one that exchanges gradients"
        )


def _refuse_what_a_session_repeats(graph: Any) -> None:
    """Nothing orders turns of a loop, and calls of a function, in a graph that a session runs."""
    with tf.init_scope():
        if tf.executing_eagerly():
            return
    looped = _control_flow.GetContainingWhileContext(graph._get_control_flow_context()) is not None
    while isinstance(graph, _BRANCHES):
        looped = looped or isinstance(graph, _LOOPS)
        graph = graph.outer_graph
    if looped or getattr(graph, "outer_graph", None) is not None:
        raise NotImplementedError(
            "smdp: in a graph that a session runs nothing orders the turns of a loop or the calls of a tf.function: "
            "exchange tensors outside of them"
        )


def _given(gradients: Sequence[Any], op: Any) -> List[Any]:
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
    # By itself: of the other gradients of the list some may have no gradient.
    name = name_of(f"{_text(op, 'lane')}/gradient/{op.get_attr('index')}")
    given = _given(gradients, op)
    return [all_reduce([one], lane=f"{name}/{place}", reduction=reduction)[0] for place, one in enumerate(given)]


@tf.RegisterGradient("SmdpBroadcast")  # type: ignore[untyped-decorator]
def _broadcast_gradient(op: Any, *gradients: Any) -> List[Any]:
    given = _given(gradients, op)
    sums = [all_reduce([one], lane=name_of("broadcast/gradient"), reduction="sum")[0] for one in given]
    if job.rank() == op.get_attr("root"):
        return sums
    with tf.control_dependencies(sums):  # which nobody uses here, and the root waits for
        return [tf.zeros_like(one) for one in sums]


@tf.RegisterGradient("SmdpAllGather")  # type: ignore[untyped-decorator]
def _all_gather_gradient(op: Any, gradient: Any, _rows: Any) -> Any:
    total = all_reduce([tf.convert_to_tensor(gradient)], lane=name_of("allgather/gradient"), reduction="sum")[0]
    return tf.split(total, op.outputs[1], num=job.size())[job.rank()]
