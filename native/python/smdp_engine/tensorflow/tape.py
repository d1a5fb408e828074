"""``DistributedGradientTape``: a tape whose gradients are the ranks' averages."""

import importlib
from typing import Any, Optional

from .gradients import exchange, refuse_devices
from .reductions import Compression, ReduceOp

tf: Any = importlib.import_module("tensorflow")


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """Wraps a ``tf.GradientTape``; ``gradient()`` returns the ranks' averages. All other methods are the tape's own.

    The order of the sources, and which gradients are None, must be the same on all ranks.

    Args:
        gradtape: the tape, before, while or after it records.
        device_dense, device_sparse: not supported.
        compression: with ``Compression.fp16`` floating-point gradients are sent and summed as float16.
        sparse_as_dense: send gradients of embeddings as whole tensors; False: only the rows that each rank has.
        op: ``ReduceOp.AVERAGE`` only.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = True,
        op: Optional[str] = ReduceOp.AVERAGE,
    ) -> None:
        refuse_devices(device_dense, device_sparse)
        self._given = gradtape
        self._exchange = exchange(compression, sparse_as_dense, op)

    def __enter__(self) -> "DistributedGradientTape":
        self._given.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._given.__exit__(*exception)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """The gradients of ``tf.GradientTape.gradient``, each averaged over all ranks."""
        own = self._given.gradient(target, sources, *args, **kwargs)
        averages = self._exchange.average(tf.nest.flatten(own))
        return tf.nest.pack_sequence_as(own, averages)

    def watch(self, tensor: Any) -> None:
        self._given.watch(tensor)

    def stop_recording(self) -> Any:
        return self._given.stop_recording()

    def reset(self) -> None:
        self._given.reset()

    def watched_variables(self) -> Any:
        return self._given.watched_variables()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """The tape's own, of this rank only."""
        return self._given.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """The tape's own, of this rank only."""
        return self._given.batch_jacobian(*args, **kwargs)
