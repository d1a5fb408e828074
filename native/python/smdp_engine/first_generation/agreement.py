"""Checks that the ranks' models have the same parameters, and copies rank 0's values to all ranks."""

import hashlib
import importlib
from typing import Any, Iterable, List

from .fusion import batches

torch: Any = importlib.import_module("torch")


def require_same(lines: List[str]) -> None:
    """Raises RuntimeError on every rank unless all ranks have the same lines; the message has the first difference."""
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    if len(set(_gather(digest))) == 1:
        return
    all_lines: List[List[str]] = _gather(lines)
    rank = next(rank for rank, theirs in enumerate(all_lines) if theirs != all_lines[0])
    rank0, theirs = all_lines[0], all_lines[rank]
    place = next((place for place, pair in enumerate(zip(rank0, theirs)) if pair[0] != pair[1]), None)
    if place is None:
        place = min(len(rank0), len(theirs))
    raise RuntimeError(
        "smddp: the ranks have different models; the first difference is "
        f"{_line(rank0, place)} on rank 0 and {_line(theirs, place)} on rank {rank}"
    )


def describe(module: Any) -> List[str]:
    """A model's parameters and buffers in the order of registration, one per line."""
    parameters = [f"parameter {name}: {_form(tensor)}" for name, tensor in module.named_parameters()]
    return parameters + [f"buffer {name}: {_form(tensor)}" for name, tensor in module.named_buffers()]


def broadcast_all(tensors: Iterable[Any], most_bytes: int) -> None:
    """Copy rank 0's values to all ranks, in batches of at most ``most_bytes``, unless one tensor is larger."""
    tensors = list(tensors)
    with torch.no_grad():
        for places in batches(tensors, most_bytes):
            _broadcast([tensors[place] for place in places])


def _gather(value: Any) -> List[Any]:
    values: List[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def _line(lines: List[str], place: int) -> str:
    return lines[place] if place < len(lines) else "nothing more"


def _form(tensor: Any) -> str:
    text = f"{str(tensor.dtype).replace('torch.', '')} {list(tensor.shape)}"
    if not tensor.is_contiguous():
        text += f" with strides {list(tensor.stride())}"
    return text + (", trained" if tensor.requires_grad else "")


def _broadcast(tensors: List[Any]) -> None:
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    torch.distributed.broadcast(flat, 0)
    if torch.distributed.get_rank() == 0:
        return
    for tensor, values in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(values.view(tensor.shape))
