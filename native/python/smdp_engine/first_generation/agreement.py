"""What makes the ranks' models one: the same parameters, found out by asking, and rank 0's values in all of them."""

import hashlib
import importlib
from typing import Any, Iterable, List

from .fusion import batches

torch: Any = importlib.import_module("torch")


def require_same(lines: List[str]) -> None:
    """Raises RuntimeError, on every rank, unless all ranks have the same lines; it names the first that differs."""
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    if len(set(_gather(digest))) == 1:
        return
    everyones: List[List[str]] = _gather(lines)
    rank = next(rank for rank, theirs in enumerate(everyones) if theirs != everyones[0])
    zeros, theirs = everyones[0], everyones[rank]
    place = next((place for place, pair in enumerate(zip(zeros, theirs)) if pair[0] != pair[1]), None)
    if place is None:
        place = min(len(zeros), len(theirs))
    raise RuntimeError(
        "smddp: the ranks have different models; the first difference is "
        f"{_line(zeros, place)} on rank 0 and {_line(theirs, place)} on rank {rank}"
    )


def describe(module: Any) -> List[str]:
    """A model's parameters and buffers in the order of their registration, a line for each."""
    parameters = [f"parameter {name}: {_form(tensor)}" for name, tensor in module.named_parameters()]
    return parameters + [f"buffer {name}: {_form(tensor)}" for name, tensor in module.named_buffers()]


def broadcast_all(tensors: Iterable[Any], most_bytes: int) -> None:
    """Gives all ranks rank 0's values; at most ``most_bytes`` at a time, unless a single tensor is larger."""
    tensors = list(tensors)
    with torch.no_grad():
        for places in batches(tensors, most_bytes):
            _broadcast([tensors[place] for place in places])


def _gather(value: Any) -> List[Any]:
    everyones: List[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everyones, value)
    return everyones


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
