"""Takes the tensors out of a state, and puts them back in.

The rest, with any classes and containers, is pickled; a name stands in it for each tensor. The names are the paths of
the tensors, such as ``model.layer.weight``, so that tools of torch can read the tensors of a checkpoint.
"""

import io
import pickle
from typing import Any, Dict, Iterator, Mapping, Tuple

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor


def take_tensors(state: Mapping[str, Any]) -> Tuple[bytes, Dict[str, torch.Tensor]]:
    """The pickled structure, and the tensors by name. Sparse and quantized tensors remain in the structure."""
    names: Dict[int, str] = {}
    tensors: Dict[str, torch.Tensor] = {}

    def name_of(tensor: torch.Tensor, path: str) -> str:
        if id(tensor) not in names:
            name, number = path, 1
            while name in tensors:
                number += 1
                name = f"{path}#{number}"
            names[id(tensor)], tensors[name] = name, tensor
        return names[id(tensor)]

    for path, tensor in _walk(state, ""):
        name_of(tensor, path)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return name_of(value, "tensor") if _is_taken(value) else None

    buffer = io.BytesIO()
    Pickler(buffer, protocol=4).dump(dict(state))
    return buffer.getvalue(), tensors


def put_tensors(structure: bytes, tensors: Mapping[str, torch.Tensor]) -> Dict[str, Any]:
    """The inverse of `take_tensors`. It unpickles the structure."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> torch.Tensor:
            return tensors[name]

    state: Dict[str, Any] = Unpickler(io.BytesIO(structure)).load()
    return state


def _is_taken(value: Any) -> bool:
    if isinstance(value, ShardedTensor):  # it has no layout
        return True
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized


def _walk(value: Any, path: str) -> Iterator[Tuple[str, torch.Tensor]]:
    if _is_taken(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _walk(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _walk(one, f"{path}.{number}")
