"""Takes the tensors out of a state, and puts them back in.

The rest, with any classes and containers, is pickled; a name stands in it for each tensor. The names are the paths of
the tensors, such as ``model.layer.weight``, so that tools of torch can read the tensors of a checkpoint.
"""

import io
import pickle
import struct
from typing import Any, Dict, Iterator, Mapping, Tuple

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor

#: By name, of each parameter and each tensor that requires a gradient: whether it is a parameter, and whether it
#: requires a gradient.
_Marks = Dict[str, Tuple[bool, bool]]
#: After the pickled structure come the pickled marks and, at the end, where they begin and this text. Earlier versions
#: ignore what follows the structure, and their structures have no marks.
_END = struct.Struct(">Q8s")
_HAS_MARKS = b"smdpmark"


def take_tensors(state: Mapping[str, Any]) -> Tuple[bytes, Dict[str, torch.Tensor]]:
    """The pickled structure, and the tensors by name. Sparse and quantized tensors remain in the structure, and
    those of other subclasses, which only their own classes can restore."""
    names: Dict[int, str] = {}
    tensors: Dict[str, torch.Tensor] = {}
    marks: _Marks = {}

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
            if not _is_taken(value):
                return None
            name = name_of(value, "tensor")
            if isinstance(value, torch.nn.Parameter) or value.requires_grad:
                marks[name] = (isinstance(value, torch.nn.Parameter), value.requires_grad)
            return name

    buffer = io.BytesIO()
    Pickler(buffer, protocol=4).dump(dict(state))
    end = buffer.tell()
    pickle.dump(marks, buffer, protocol=4)
    buffer.write(_END.pack(end, _HAS_MARKS))
    return buffer.getvalue(), tensors


def put_tensors(structure: bytes, tensors: Mapping[str, torch.Tensor]) -> Dict[str, Any]:
    """The inverse of `take_tensors`. It unpickles the structure."""
    marks = _marks_in(structure)
    parameters: Dict[str, torch.Tensor] = {}

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: str) -> torch.Tensor:
            is_parameter, needs_gradient = marks.get(name, (False, False))
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


def _marks_in(structure: bytes) -> _Marks:
    begin, has_marks = _END.unpack(structure[-_END.size :]) if len(structure) > _END.size else (0, b"")
    marks: _Marks = pickle.loads(structure[begin : -_END.size]) if has_marks == _HAS_MARKS else {}  # noqa: S301
    return marks


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
