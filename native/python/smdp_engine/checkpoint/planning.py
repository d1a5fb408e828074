"""What each rank writes: the plans of torch.distributed.checkpoint, with replicated tensors divided among the ranks.

A plain tensor is a replica: it is equal on all ranks. The replicas are imagined as one row of bytes, which is cut into
equal parts, one for each rank, at the rows of the tensors. Every rank finds its own part without communication. Tensors
that are sharded already (DTensor, ShardedTensor) are planned by torch.
"""

import dataclasses
import io
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Union

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_local_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from .memory import copy_to

Data = Union[torch.Tensor, io.BytesIO]


class SharingPlanner(DefaultSavePlanner):
    """Plans and resolves the part of rank ``rank`` of ``world_size``."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(flatten_state_dict=False)
        self._rank, self._world_size = rank, world_size
        self._data: Dict[MetadataIndex, Data] = {}

    def create_local_plan(self) -> SavePlan:
        replicas = {name: value for name, value in self.state_dict.items() if is_replica(value)}
        others = {name: value for name, value in self.state_dict.items() if name not in replicas}
        plan = create_default_local_save_plan(others, True)
        items = [*plan.items, *_items_of_part(replicas, self._rank, self._world_size)]
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def take(self, plan: SavePlan, buffers: "Buffers") -> None:
        """Copy this rank's part of the state to the buffers, so that the training may change the state."""
        self._data = {}  # of an earlier plan
        self._data = {item.index: self._taken(item, buffers) for item in plan.items}
        buffers.finish_copies()

    def forget(self) -> None:
        """Drop the state: an error must not keep it in memory."""
        self._data, self.state_dict = {}, {}

    def resolve_data(self, write_item: WriteItem) -> Data:
        taken = self._data.get(write_item.index)
        if taken is not None:
            return taken
        value = self.state_dict[write_item.index.fqn]
        if write_item.type == WriteItemType.SHARD and is_replica(value):
            return _slice(value, write_item)
        resolved: Data = super().resolve_data(write_item)
        return resolved

    def _taken(self, item: WriteItem, buffers: "Buffers") -> Data:
        data = self.resolve_data(item)
        return buffers.copy(item.index, data) if isinstance(data, torch.Tensor) else data


class Buffers:
    """Memory on the host for one part of a state. It is reused by the next save, since new memory is slow at first."""

    def __init__(self) -> None:
        self._buffers: Dict[MetadataIndex, torch.Tensor] = {}
        self._has_copies = False

    def copy(self, index: MetadataIndex, data: torch.Tensor) -> torch.Tensor:
        data = data.detach()
        buffer = self._buffers.get(index)
        if buffer is None or buffer.shape != data.shape or buffer.dtype != data.dtype:
            buffer = torch.empty(data.shape, dtype=data.dtype, pin_memory=data.is_cuda)
            self._buffers[index] = buffer
        if copy_to(buffer, data):
            return buffer
        self._has_copies = self._has_copies or data.is_cuda
        return buffer.copy_(data, non_blocking=data.is_cuda)

    def finish_copies(self) -> None:
        if self._has_copies:
            torch.cuda.current_stream().synchronize()
            self._has_copies = False


def is_replica(value: Any) -> bool:
    """Whether the value is a tensor that all ranks have in full."""
    return isinstance(value, torch.Tensor) and not isinstance(value, (DTensor, ShardedTensor))


def plan_key(plan: SavePlan) -> List[Any]:
    """Two saves with equal keys have the same plan."""
    return [(item.type, item.index, item.tensor_data and _layout(item.tensor_data)) for item in plan.items]


def _layout(data: TensorWriteData) -> Tuple[Any, ...]:
    return data.size, data.chunk.offsets, data.chunk.sizes, data.properties.dtype


def _items_of_part(replicas: Mapping[str, torch.Tensor], rank: int, world_size: int) -> Iterator[WriteItem]:
    total = sum(_rows(tensor) * _row_bytes(tensor) for tensor in replicas.values())
    at = 0
    for name, tensor in replicas.items():
        rows, size = _rows(tensor), _row_bytes(tensor)
        first, last = (_rows_before(at, size, rows, total, one, world_size) for one in (rank, rank + 1))
        if rank == world_size - 1:
            last = rows
        at += rows * size
        is_empty = tensor.numel() == 0
        if first < last and not is_empty:
            yield _item(name, tensor, first, last)
        elif is_empty and rank == 0:
            yield _item(name, tensor, 0, rows)


def _rows_before(at: int, size: int, rows: int, total: int, rank: int, world_size: int) -> int:
    """How many rows of a tensor that begins at byte ``at`` begin before the part of ``rank``."""
    boundary = total * rank // world_size
    return max(0, min(rows, -((at - boundary) // size))) if size else 0


def _rows(tensor: torch.Tensor) -> int:
    return tensor.shape[0] if tensor.dim() else 1


def _row_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() // max(1, _rows(tensor)) * tensor.element_size()


def _item(name: str, tensor: torch.Tensor, first: int, last: int) -> WriteItem:
    offsets = torch.Size([first, *[0] * (tensor.dim() - 1)] if tensor.dim() else [])
    sizes = torch.Size([last - first, *tensor.shape[1:]] if tensor.dim() else [])
    data = TensorWriteData(
        chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
        properties=TensorProperties.create_from_tensor(tensor),
        size=tensor.size(),
    )
    return WriteItem(index=MetadataIndex(name, offsets), type=WriteItemType.SHARD, tensor_data=data)


def _slice(tensor: torch.Tensor, item: WriteItem) -> torch.Tensor:
    chunk = item.tensor_data.chunk if item.tensor_data is not None else None
    if chunk is None or not tensor.dim():
        return tensor.detach()
    return tensor.detach().narrow(0, chunk.offsets[0], chunk.sizes[0])
