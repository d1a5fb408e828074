"""Copies one rank's variables to all ranks: ``broadcast_variables`` and its variants for graphs."""

import importlib
import zlib
from typing import Any, Callable, Iterable, List, Union

from . import job, operations

tf: Any = importlib.import_module("tensorflow")
_plain = tf.autograph.experimental.do_not_convert

_BATCH_BYTES = 256 * 1024 * 1024  # the maximum of copies in memory at a time


@_plain  # type: ignore[untyped-decorator]
def broadcast_variables(variables: Union[Iterable[Any], Callable[[], Iterable[Any]]], root_rank: int) -> Any:
    """Copy the root's values to every rank: of a model's variables, or of an optimizer's once it has created them.

    Args:
        variables: a list, or a function that returns one, as ``optimizer.variables`` of some optimizers.

    Returns:
        None; in a graph of a session (``tf.compat.v1``) the operation that copies them.

    Raises:
        RuntimeError: the ranks' variables differ in number, type or shape.
        ValueError: an element is not a variable.
    """
    assigned = _broadcast(list(variables() if callable(variables) else variables), root_rank)
    return operations.left_to_run(None if tf.executing_eagerly() else tf.group(*assigned))


def broadcast_global_variables(root_rank: int) -> Any:
    """An operation that copies all variables of a session's graph (``tf.compat.v1``) from the root to every rank.

    Raises:
        RuntimeError: TensorFlow executes eagerly, so there is no such graph.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables() is for graphs of tf.compat.v1: "
            "call broadcast_variables(model.variables, root_rank=0)"
        )
    return tf.group(*_broadcast(tf.compat.v1.global_variables(), root_rank))


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """For ``tf.estimator`` and monitored sessions: copies the root's variables to every rank when a session begins."""

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
    variables = [_of_tensorflow(variable) for variable in variables]
    for place, variable in enumerate(variables):
        if not hasattr(variable, "assign"):
            raise ValueError(f"broadcast_variables() takes variables, found {type(variable).__name__} in place {place}")
    if tf.executing_eagerly():
        _require_same(variables)
    assigned = []
    for batch in _batches(variables):
        values = [tf.convert_to_tensor(variable) for variable in batch]
        received = operations.broadcast(values, sequence=operations.name_of("variables"), root=root)
        assigned += [variable.assign(value) for variable, value in zip(batch, received)]
    return assigned


def _of_tensorflow(variable: Any) -> Any:
    """The TensorFlow variable in a variable of Keras 3; any other variable unchanged."""
    value = getattr(variable, "value", None)
    return variable if callable(value) or value is None else value


def _require_same(variables: List[Any]) -> None:
    lines = [f"{variable.dtype.name} {variable.shape}" for variable in variables]
    own = tf.constant([[len(lines), zlib.crc32("\n".join(lines).encode())]], tf.int64)
    digests = operations.all_gather(own, sequence="variables/digest")[0].numpy().tolist()
    other = next((rank for rank, theirs in enumerate(digests) if theirs != digests[job.rank()]), None)
    if other is not None:
        theirs = digests[other][0]
        difference = f"{theirs}" if theirs != len(lines) else "as many with other types or shapes"
        raise RuntimeError(
            f"smdp: broadcast_variables() got {len(lines)} variables on rank {job.rank()}, and {difference} on rank "
            f"{other}: pass the same variables in the same order on all ranks, after the model and the optimizer have "
            "created them"
        )


def _batches(variables: List[Any]) -> List[List[Any]]:
    batches: List[List[Any]] = []
    total = 0
    for variable in variables:
        size = variable.dtype.size * (variable.shape.num_elements() or 0)
        if not batches or total + size > _BATCH_BYTES:
            batches.append([])
            total = 0
        batches[-1].append(variable)
        total += size
    return batches
