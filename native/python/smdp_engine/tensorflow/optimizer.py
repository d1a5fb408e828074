"""``DistributedOptimizer``: an optimizer that applies the ranks' averages of its gradients."""

import importlib
from typing import Any, List, Optional, Tuple

from .gradients import Exchange, exchange, refuse_devices
from .keras import distribute, is_keras_optimizer
from .reductions import Compression, ReduceOp

tf: Any = importlib.import_module("tensorflow")


def DistributedOptimizer(  # noqa: N802, PLR0913, PLR0917 (the library's own name and signature)
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: Optional[str] = ReduceOp.AVERAGE,
    bucket_cap_mb: float = 25,
) -> Any:
    """The optimizer, which averages gradients over all ranks before it applies them.

    A Keras optimizer (2 or 3), for ``model.compile`` and ``model.fit``: the same object, saved and loaded as before.
    An optimizer of ``tf.compat.v1.train``, for ``tf.estimator`` and sessions: ``compute_gradients`` returns averages.

    Args:
        name, use_locking: for an optimizer of ``tf.compat.v1.train``.
        device_dense, device_sparse, compression, sparse_as_dense, op: see ``DistributedGradientTape``.
        bucket_cap_mb: the maximum size of a fusion buffer in MiB, unless it has one gradient.

    Raises:
        ValueError: an argument is invalid, or ``optimizer`` is not an optimizer.
    """
    refuse_devices(device_dense, device_sparse)
    how = exchange(compression, sparse_as_dense, op, bucket_cap_mb)
    if is_keras_optimizer(optimizer):
        return distribute(optimizer, how)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _SessionOptimizer(optimizer, how, name or f"Distributed{type(optimizer).__name__}", use_locking)
    raise ValueError(f"DistributedOptimizer takes an optimizer of Keras or tf.compat.v1.train, found {optimizer!r}")


class _SessionOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    def __init__(self, optimizer: Any, how: Exchange, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._how = how

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        """The optimizer's gradients, each averaged over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        averages = self._how.average([gradient for gradient, _ in pairs])
        return [(average, variable) for average, (_, variable) in zip(averages, pairs)]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)
