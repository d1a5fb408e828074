"""The same values in all ranks' variables: ``broadcast_variables`` and its forms for graphs."""

import importlib
import zlib
from typing import Any, Callable, Iterable, List, Union

from . import job, operations

tf: Any = importlib.import_module("tensorflow")
_plain = tf.autograph.experimental.do_not_convert

_BATCH_BYTES = 256 * 1024 * 1024  # of copies that are alive at a time


@_plain  # type: ignore[untyped-decorator]
def broadcast_variables(variables: Union[Iterable[Any], Callable[[], Iterable[Any]]], root_rank: int) -> Any:
    """Gives every rank the root's values: of a model's variables, and of an optimizer's once it has made them.

    Args:
        variables: also ``optimizer.variables``, which is a list of some optimizers and a function of others.

    Returns:
        None; in a graph that a session runs (``tf.compat.v1``) the operation that does it.

    Raises:
        RuntimeError: the ranks' variables differ in number, type or shape.
        ValueError: one is no variable.
    """
    assigned = _broadcast(list(variables() if callable(variables) else variables), root_rank)
    return operations.left_to_run(None if tf.executing_eagerly() else tf.group(*assigned))


def broadcast_global_variables(root_rank: int) -> Any:
    """The same for all variables of a graph that a session runs (``tf.compat.v1``): an operation that does it.

    Raises:
        RuntimeError: there is no such graph, since TensorFlow executes eagerly.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables() is for graphs of tf.compat.v1: "
            "call broadcast_variables(model.variables, root_rank=0)"
        )
    return tf.group(*_broadcast(tf.compat.v1.global_variables(), root_rank))


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """For ``tf.estimator`` and monitored sessions: gives every rank the root's variables when a session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self._root_rank = root_rank
        self._device = device
        self._operation: Any = None

    def begin(self) -> None:
        with tf.device(self._device or None):
            self._operation = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: Any, _coordinator: Any) -> None:
        session.run(self._operation)


def _broadcast(variables: List[Any], root: int) -> List[Any]:
    variables = [_of_tensorflow(one) for one in variables]
    for place, one in enumerate(variables):
        if not hasattr(one, "assign"):
            raise ValueError(f"broadcast_variables() takes variables, found {type(one).__name__} in place {place}")
    if tf.executing_eagerly():
        _require_same(variables)
    assigned = []
    for batch in _batches(variables):
        values = [tf.convert_to_tensor(one) for one in batch]
        received = operations.broadcast(values, sequence=operations.name_of("variables"), root=root)
        assigned += [one.assign(value) for one, value in zip(batch, received)]
    return assigned


def _of_tensorflow(variable: Any) -> Any:
    """What a variable of Keras 3 holds; any other as it is."""
    value = getattr(variable, "value", None)
    return variable if callable(value) or value is None else value


def _require_same(variables: List[Any]) -> None:
    lines = [f"{one.dtype.name} {one.shape}" for one in variables]
    own = tf.constant([[len(lines), zlib.crc32("\n".join(lines).encode())]], tf.int64)
    everyones = operations.all_gather(own, sequence="variables/digest")[0].numpy().tolist()
    other = next((rank for rank, theirs in enumerate(everyones) if theirs != everyones[job.rank()]), None)
    if other is not None:
        theirs = everyones[other][0]
        differ = f"{theirs}" if theirs != len(lines) else "as many, of other types or shapes,"
        raise RuntimeError(
            f"smdp: broadcast_variables() of {len(lines)} variables here, on rank {job.rank()}, and of {differ} on "
            f"rank {other}: all ranks give the same ones, in one order, when the model and the optimizer have made them"
        )


def _batches(variables: List[Any]) -> List[List[Any]]:
    batches: List[List[Any]] = []
    held = 0
    for one in variables:
        size = one.dtype.size * (one.shape.num_elements() or 0)
        if not batches or held + size > _BATCH_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(one)
        held += size
    return batches
