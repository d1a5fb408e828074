"""The custom operations with their gradients, and the names under which the ranks' calls meet.

In a graph nothing says in which order operations run, so each has a name of its own: what it is, the function that
it is made in and the types of that function's arguments (their shapes may differ between ranks, as the last batch's
do), and the how manieth such one of the function it is. However often, and from wherever, the ranks trace their
functions, these agree. Functions that exchange something run one after the other, so that two calls of one of them
do not meet under its names. Eager operations run in the order of the program and share a name.
"""

import collections
import functools
import importlib
import weakref
import zlib
from typing import Any, Counter, List, MutableMapping, Optional, Sequence, Tuple

from . import job
from .library import operations

tf: Any = importlib.import_module("tensorflow")
_control_flow: Any = importlib.import_module("tensorflow.python.ops.control_flow_util")
_branches: Any = importlib.import_module("tensorflow.python.ops.control_flow_v2_func_graphs")

DEFAULT_BUFFER_BYTES = 25 * 1024 * 1024
_BRANCHES = (_branches.WhileBodyFuncGraph, _branches.WhileCondFuncGraph, _branches.CondBranchFuncGraph)
_places: MutableMapping[Any, Counter[str]] = weakref.WeakKeyDictionary()


def name_of(what: str, index: Optional[int] = None) -> str:
    """A name for an operation that is made now.

    With ``index``: for the list of gradients of which this number is made now. Nothing is known of the others yet, so
    the place of the list is how often the function has made this index.
    """
    if tf.executing_eagerly():
        return what
    graph = tf.compat.v1.get_default_graph()
    _refuse_xla(graph)
    function = _function_of(graph)
    _run_in_turn()
    name = f"{what}/{getattr(function, 'name', 'graph')}/{_digest_of_arguments(function):08x}"
    return f"{name}#{_place_of(f'{name}/{index}', function)}"


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


def _run_in_turn() -> None:
    """TensorFlow orders the calls of functions that write to one resource, and leaves the operations within alone.

    A graph that a session runs has no such calls.
    """
    with tf.init_scope():
        turn = _turn() if tf.executing_eagerly() else None
    if turn is not None:
        turn.assign_add(0)


@functools.lru_cache(maxsize=None)
def _turn() -> Any:
    with tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="smdp_turn")


def _place_of(what: str, graph: Any) -> int:
    seen = _places.setdefault(graph, collections.Counter())
    seen[what] += 1
    return seen[what]


def all_reduce(
    tensors: Sequence[Any],
    *,
    lane: str,
    reduction: str,
    index: int = 0,
    count: int = 1,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
) -> List[Any]:
    """Reduces the gradients ``index`` and following of ``count``."""
    reduced = operations().smdp_all_reduce(
        values=list(tensors), lane=lane, index=index, count=count, reduction=reduction, buffer_bytes=buffer_bytes
    )
    return list(reduced)


def broadcast(tensors: Sequence[Any], *, sequence: str, root: int) -> List[Any]:
    if not 0 <= root < job.size():
        raise ValueError(f"root_rank must be a rank of the job, 0 to {job.size() - 1}, found {root}")
    return list(operations().smdp_broadcast(values=list(tensors), sequence=sequence, root=root))


def all_gather(tensor: Any, *, sequence: str) -> Tuple[Any, Any]:
    """The ranks' tensors, one after the other along the first dimension, and how many rows are whose."""
    gathered = operations().smdp_all_gather(value=tensor, sequence=sequence)
    return gathered.gathered, gathered.rows


def barrier(*, sequence: str) -> Any:
    return operations().smdp_barrier(sequence=sequence)


def _refuse_xla(graph: Any) -> None:
    if _control_flow.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(
            "smdp: gradients are exchanged by the hosts' CPUs, which XLA cannot compile into a step: leave out "
            "jit_compile=True (of a Keras model: model.compile(..., jit_compile=False)), or give it to the "
            "functions that compute the loss and not to the one that exchanges gradients"
        )


def _given(gradients: Sequence[Any], op: Any) -> List[Any]:
    return [
        tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, value in zip(gradients, op.inputs)
    ]


@tf.RegisterGradient("SmdpAllReduce")  # type: ignore[untyped-decorator]
def _all_reduce_gradient(op: Any, *gradients: Any) -> List[Any]:
    reduction = op.get_attr("reduction")
    reduction = reduction.decode() if isinstance(reduction, bytes) else reduction
    if reduction not in {"average", "sum"}:
        raise NotImplementedError(f"smdp: {reduction} over ranks has no gradient")
    lane = op.get_attr("lane")
    lane = lane.decode() if isinstance(lane, bytes) else lane
    # By itself: of the other gradients of the list some may have no gradient.
    name = name_of(f"{lane}/gradient/{op.get_attr('index')}")
    given = _given(gradients, op)
    return [all_reduce([one], lane=f"{name}/{place}", reduction=reduction)[0] for place, one in enumerate(given)]


@tf.RegisterGradient("SmdpBroadcast")  # type: ignore[untyped-decorator]
def _broadcast_gradient(op: Any, *gradients: Any) -> List[Any]:
    given = _given(gradients, op)
    sums = [all_reduce([one], lane=name_of("broadcast/gradient"), reduction="sum")[0] for one in given]
    return sums if job.rank() == op.get_attr("root") else [tf.zeros_like(one) for one in sums]


@tf.RegisterGradient("SmdpAllGather")  # type: ignore[untyped-decorator]
def _all_gather_gradient(op: Any, gradient: Any, _rows: Any) -> Any:
    total = all_reduce([tf.convert_to_tensor(gradient)], lane=name_of("allgather/gradient"), reduction="sum")[0]
    return tf.split(total, op.outputs[1], num=job.size())[job.rank()]
