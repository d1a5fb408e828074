"""The exchange of a model's gradients, which the tape and the optimizers use."""

import importlib
import zlib
from typing import Any, List, NamedTuple, Optional, Sequence

from . import job, operations
from .reductions import Compression, ReduceOp, reduction_of

tf: Any = importlib.import_module("tensorflow")

_ALIGNMENT = 128  # bytes; the size of a fusion buffer is a multiple of it


class Exchange(NamedTuple):
    """How gradients are reduced. See ``DistributedGradientTape`` for the meaning of the fields."""

    compression: Any = Compression.none
    sparse_as_dense: bool = True
    buffer_bytes: int = operations.DEFAULT_BUFFER_BYTES

    def average(self, gradients: Sequence[Optional[Any]]) -> List[Optional[Any]]:
        """The ranks' average of each gradient; None stays None, on all ranks."""
        if job.size() == 1:
            return list(gradients)
        dense, sparse = [], []
        for place, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                sparse.append(place)
            elif gradient is not None:
                dense.append(place)
        averages = list(gradients)
        for place, average in zip(dense, self._average_dense([tf.convert_to_tensor(gradients[i]) for i in dense])):
            averages[place] = average
        for place in sparse:
            averages[place] = self._gather(gradients[place])
        return averages

    def _average_dense(self, gradients: List[Any]) -> List[Any]:
        if not gradients:
            return []
        packed, contexts = zip(*(self.compression.compress(gradient) for gradient in gradients))
        among = operations.name_of("gradients")
        described = " ".join(f"{tensor.dtype.name}{tensor.shape}".replace(" ", "") for tensor in packed)
        # Different lists have different lanes.
        lane = f"{among}/{zlib.crc32(described.encode()):08x}/{self.buffer_bytes}"

        def reduce(tensors: Sequence[Any], index: int) -> List[Any]:
            place = operations.Place(index, len(packed), self.buffer_bytes, described, among)
            return operations.all_reduce(tensors, lane=lane, reduction=ReduceOp.AVERAGE, place=place)

        if tf.executing_eagerly():  # a call waits for its result
            reduced = reduce(packed, 0)
        else:
            reduced = [reduce([tensor], index)[0] for index, tensor in enumerate(packed)]
        return [self.compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]

    def _gather(self, gradient: Any) -> Any:
        """The rows of all ranks; the user of the gradient adds rows of the same index, as for one rank."""
        packed, context = self.compression.compress(gradient.values)
        values, _ = operations.all_gather(packed, sequence=operations.name_of("sparse/values"))
        indices, _ = operations.all_gather(gradient.indices, sequence=operations.name_of("sparse/indices"))
        values = self.compression.decompress(values, context) / tf.cast(job.size(), gradient.dtype)
        return tf.IndexedSlices(values, indices, gradient.dense_shape)


def exchange(compression: Any, sparse_as_dense: bool, op: Optional[str], bucket_cap_mb: float = 25) -> Exchange:
    """The exchange for the library's arguments.

    Raises:
        ValueError: ``op`` is not AVERAGE, or ``bucket_cap_mb`` MiB is not a multiple of 128 bytes.
    """
    if reduction_of(op) != ReduceOp.AVERAGE:
        raise ValueError(f"op must be ReduceOp.AVERAGE for gradients, found {op!r}")
    buffer_bytes = bucket_cap_mb * 1024 * 1024
    if buffer_bytes <= 0 or buffer_bytes % _ALIGNMENT != 0:
        raise ValueError(
            f"bucket_cap_mb * 1024 * 1024 must be a multiple of {_ALIGNMENT} above 0, found {bucket_cap_mb}"
        )
    return Exchange(compression, bool(sparse_as_dense), int(buffer_bytes))


def refuse_devices(device_dense: Any, device_sparse: Any) -> None:
    """Raises ValueError if either is set: the hosts' CPUs reduce the tensors."""
    for name, device in (("device_dense", device_dense), ("device_sparse", device_sparse)):
        if device:
            raise ValueError(f"{name} is not supported, since the hosts' CPUs reduce the gradients: omit it")
