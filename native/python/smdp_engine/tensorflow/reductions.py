"""The operations on tensors for scripts: reductions, broadcast and compression."""

import importlib
from typing import Any, Optional, Tuple

from . import operations

tf: Any = importlib.import_module("tensorflow")
_plain = tf.autograph.experimental.do_not_convert  # AutoGraph has nothing to convert in these functions


class ReduceOp:
    """The operations of ``allreduce``."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class NoneCompression:
    """Values are sent unchanged."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor to send, and the context for ``decompress``."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, _context: Any) -> Any:
        return tensor


class FP16Compression:
    """Floating-point values are sent and summed as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        if not tensor.dtype.is_floating:
            return tensor, tensor.dtype
        return tf.cast(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tf.cast(tensor, context)


class Compression:
    none = NoneCompression
    fp16 = FP16Compression


def reduction_of(op: Optional[str]) -> str:
    """The name of a ``ReduceOp``; None is the average.

    Raises:
        ValueError: ``op`` is not a ``ReduceOp``.
    """
    op = ReduceOp.AVERAGE if op is None else op
    if op not in {ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX}:
        raise ValueError(f"op must be one of ReduceOp.AVERAGE, SUM, MIN and MAX, found {op!r}")
    return op


@_plain  # type: ignore[untyped-decorator]
def allreduce(
    tensor: Any = None,
    param_index: int = 0,
    num_params: int = 1,
    compression: Any = Compression.none,
    op: Optional[str] = ReduceOp.AVERAGE,
    *,
    grad: Any = None,
) -> Any:
    """Reduce gradient ``param_index`` of ``num_params``; returns a new tensor of its shape and type.

    In a ``tf.function`` gradients are reduced while others are still being computed, in any order. Every rank must call
    it for all gradients, each with the same shape in every step, and no gradient may depend on the average of another
    one. Outside of a ``tf.function`` each call waits for its result, so the ranks must make the calls in the same
    order. ``grad`` is another name of ``tensor``.

    Raises:
        TypeError: this type of tensor cannot be reduced.
        ValueError: an argument is invalid.
    """
    if (tensor is None) == (grad is None):
        raise ValueError("allreduce() takes one tensor")
    if not 0 <= param_index < num_params:
        raise ValueError(f"param_index must be 0 to num_params - 1, found {param_index} of {num_params}")
    packed, context = compression.compress(tf.convert_to_tensor(grad if tensor is None else tensor))
    reduction = reduction_of(op)
    if tf.executing_eagerly():
        lane = f"eager/{param_index}/{num_params}/{reduction}"
        reduced = operations.all_reduce([packed], lane=lane, reduction=reduction)
    else:
        # The other gradients of the list are not known yet, so the place of this index names the lane. Functions of one
        # name share the lane, also if they train different models.
        what = f"parameters/{num_params}/{reduction}"
        lane = f"{what}/{operations.place_of(f'{what}/{param_index}')}"
        place = operations.Place(param_index, num_params, trace=operations.trace_number())
        reduced = operations.all_reduce([packed], lane=lane, reduction=reduction, place=place)
    return compression.decompress(reduced[0], context)


@_plain  # type: ignore[untyped-decorator]
def oob_allreduce(tensor: Any, compression: Any = Compression.none, op: Optional[str] = ReduceOp.AVERAGE) -> Any:
    """The average of a tensor that is not a gradient, such as a loss or a metric; a new tensor of its type: an average
    of integers is truncated.

    Raises:
        TypeError: this type of tensor cannot be reduced.
        ValueError: ``op`` is not AVERAGE.
    """
    reduction = reduction_of(op)
    if reduction != ReduceOp.AVERAGE:
        raise ValueError(f"oob_allreduce() computes ReduceOp.AVERAGE only, found {op!r}")
    packed, context = compression.compress(tf.convert_to_tensor(tensor))
    reduced = operations.all_reduce([packed], lane=operations.name_of("outofband"), reduction=reduction)[0]
    return compression.decompress(reduced, context)


@_plain  # type: ignore[untyped-decorator]
def overlap(tensor: Any) -> Any:
    """The tensor itself: the exchange overlaps with the backward pass without such a mark."""
    return tf.identity(tensor)


@_plain  # type: ignore[untyped-decorator]
def broadcast(tensor: Any, root_rank: int) -> Any:
    """The root's values, on every rank; a new tensor."""
    name = operations.name_of("broadcast")
    return operations.broadcast([tf.convert_to_tensor(tensor)], sequence=name, root=root_rank)[0]


@_plain  # type: ignore[untyped-decorator]
def allgather(tensor: Any) -> Any:
    """The ranks' tensors, concatenated along the first dimension, in which they may differ."""
    return operations.all_gather(tf.convert_to_tensor(tensor), sequence=operations.name_of("allgather"))[0]


@_plain  # type: ignore[untyped-decorator]
def barrier() -> Any:
    """Wait until every rank has called it. In a ``tf.function`` other operations need a control dependency to run after
    it; in a graph of a session the returned operation waits."""
    return operations.left_to_run(operations.barrier(sequence=operations.name_of("barrier")))
