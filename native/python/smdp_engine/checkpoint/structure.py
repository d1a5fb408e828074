"""Takes the tensors out of a state, and puts them back in.

The rest, with any classes and containers, is pickled; a name stands in it for each tensor. The names are the paths of
the tensors, such as ``model.layer.weight``, so that tools of torch can read the tensors of a checkpoint.
"""

import io
import pickle
from typing import Any, Dict, Iterator, Mapping, Tuple, Union

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor

#: What stands in the structure for a tensor: its name. For a parameter, or a tensor that requires a gradient: its name,
#: whether it is a parameter, and whether it requires a gradient.
_Mark = Union[str, Tuple[str, bool, bool]]


def take_tensors(state: Mapping[str, Any]) -> Tuple[bytes, Dict[str, torch.Tensor]]:
    """The pickled structure, and the tensors by name. Sparse and quantized tensors remain in the structure, and
    those of other subclasses, which only their own classes can restore."""
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

    for path, tensor in _walk(state, "", {}):
        name_of(tensor, path)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return _mark(name_of(value, "tensor"), value) if _is_taken(value) else None

    buffer = io.BytesIO()
    Pickler(buffer, protocol=4).dump(dict(state))
    return buffer.getvalue(), tensors


def put_tensors(structure: bytes, tensors: Mapping[str, torch.Tensor]) -> Dict[str, Any]:
    """The inverse of `take_tensors`. It unpickles the structure."""
    parameters: Dict[str, torch.Tensor] = {}

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, mark: _Mark) -> torch.Tensor:
            name, is_parameter, needs_gradient = (mark, False, False) if isinstance(mark, str) else mark
            tensor = tensors[name]
            if type(tensor) is not torch.Tensor:  # it is the script's own, filled in place
                return tensor
            if not is_parameter:
                return tensor.requires_grad_(needs_gradient)
            if name not in parameters:
                parameters[name] = torch.nn.Parameter(tensor, needs_gradient)
            return parameters[name]

    state: Dict[str, Any] = Unpickler(io.BytesIO(structure)).load()
    return state


def _is_taken(value: Any) -> bool:
    if isinstance(value, ShardedTensor):  # it has no layout
        return True
    is_known = type(value) in (torch.Tensor, torch.nn.Parameter) or isinstance(value, DTensor)
    return is_known and value.layout == torch.strided and not value.is_quantized


def _mark(name: str, tensor: torch.Tensor) -> _Mark:
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return (name, is_parameter, tensor.requires_grad) if is_parameter or tensor.requires_grad else name


def _walk(value: Any, path: str, walked: Dict[int, Any]) -> Iterator[Tuple[str, torch.Tensor]]:
    """``walked`` has the containers by their id: one that contains itself is walked once."""
    if _is_taken(value):
        yield path, value
        return
    if not isinstance(value, (Mapping, list, tuple)) or id(value) in walked:
        return
    walked[id(value)] = value
    for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _walk(one, f"{path}.{key}" if path else str(key), walked)
