"""``torch.cuda.FloatTensor`` and the other types of tensors on a GPU."""

import importlib
from typing import Any

from .devices import devices
from .placement import placement

torch: Any = importlib.import_module("torch")


class _OnGpu(type):
    """A type makes tensors on the current GPU, and its instances are the tensors of its element type on a GPU."""

    cpu_type: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        index = devices.current()
        kwargs.pop("device", None)
        tensor = cls.cpu_type(*args, **kwargs)
        placement.put(tensor, index)
        return tensor

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.cpu_type) and placement.of(instance) is not None


def on_gpu(name: str) -> Any:
    """The type ``torch.cuda.<name>Tensor``."""
    cpu_type = getattr(torch, f"{name}Tensor")
    return _OnGpu(f"{name}Tensor", (), {"__module__": "torch.cuda", "cpu_type": cpu_type, "dtype": cpu_type.dtype})


def on_cpu(named: Any) -> Any:
    """The CPU's type for one of a GPU, which may be named by a text; anything else unchanged."""
    if isinstance(named, str) and named.startswith("torch.cuda."):
        return named.replace("torch.cuda.", "torch.")
    return named.cpu_type if isinstance(named, _OnGpu) else named


def set_default(original: Any) -> Any:
    """``torch.set_default_tensor_type``."""
    return lambda t: original(on_cpu(t))
