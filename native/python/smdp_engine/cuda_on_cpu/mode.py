"""The function mode: runs every call of torch that names a GPU on the CPU.

A mode is active in one thread. So new threads activate it before they run, and the autograd engine activates it for the
hooks and functions that it runs, since torch deactivates modes inside the calls that they handle.
"""

import importlib
import threading
from typing import Any, Callable, Dict

from . import tensor_types
from .devices import devices
from .placement import placement

torch: Any = importlib.import_module("torch")
_overrides: Any = importlib.import_module("torch.overrides")

_Tensor = torch.Tensor


class OnCpu(_overrides.TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        special = _SPECIAL.get(func)
        if special is not None:
            return special(*args, **kwargs)
        index = devices.index(kwargs.get("device"))
        if index is not None:
            kwargs["device"] = "cpu"
        elif kwargs.get("device") is None:
            index = placement.of_any(args) if args else None
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = func(*args, **kwargs)
        # A tensor that a call changes in place stays on its device: cpu_tensor.copy_(gpu_tensor).
        if index is not None and not (args and result is args[0]):
            placement.put(result, index)
        return result


MODE = OnCpu()


class turned_on:  # noqa: N801 (a context manager without contextlib's overhead: it runs for every thread)
    """Activates the mode unless it is active."""

    def __enter__(self) -> None:
        self._entered = not any(mode is MODE for mode in _overrides._get_current_function_mode_stack())
        if self._entered:
            MODE.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._entered:
            MODE.__exit__(*error)


def with_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with turned_on():
            return function(*args, **kwargs)

    return run


def turn_on() -> None:
    """Activate the mode for this thread and all later ones."""
    MODE.__enter__()
    thread: Any = threading.Thread
    thread._bootstrap_inner = with_mode(thread._bootstrap_inner)
    variable: Any = torch.autograd.Variable
    variable._execution_engine = _Engine(variable._execution_engine)


class _Engine:
    """torch's autograd engine, with the mode active in the functions that it runs."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.run_backward = with_mode(engine.run_backward)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    first = kwargs.get("other", args[0] if args else None)
    if isinstance(first, _Tensor):
        return _moved(self, _Tensor.to(self, *args, **kwargs), placement.of(first))
    if "device" in kwargs:
        device = kwargs["device"]
    else:
        device = first if isinstance(first, (str, int, torch.device)) else None
    index = devices.index(device)
    if index is not None and "device" in kwargs:
        kwargs["device"] = "cpu"
    elif index is not None:
        args = ("cpu", *args[1:])
    result = _Tensor.to(self, *args, **kwargs)
    return _moved(self, result, placement.of(self) if device is None else index)


def _cuda(self: Any, device: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    return _moved(self, self, devices.resolve(device))


def _cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _moved(self, _Tensor.cpu(self, *args, **kwargs), None)


def _moved(source: Any, result: Any, index: Any) -> Any:
    """The result on the GPU ``index``, None for the CPU: a copy if the source is on another device.

    A trained parameter is moved without a copy: a copy would not be trained.
    """
    stays = source.requires_grad and source.is_leaf and torch.is_grad_enabled()
    if result is source and placement.of(source) != index and not stays:
        result = source.clone()
    if index is not None:
        placement.put(result, index)
    return result


def _pin_memory(self: Any, device: Any = None) -> Any:
    """A copy, as with CUDA, but in ordinary memory."""
    return self.clone()


def _is_cuda(self: Any, *_type: Any) -> bool:
    return placement.of(self) is not None


def _device(self: Any, *_type: Any) -> Any:
    index = placement.of(self)
    return _Tensor.device.__get__(self) if index is None else devices.cpu_device(index)


def _get_device(self: Any) -> int:
    index = placement.of(self)
    return int(_Tensor.get_device(self)) if index is None else index


def _type(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    on_cpu = tensor_types.on_cpu(dtype)
    on_gpu = on_cpu is not dtype
    result = _Tensor.type(self, on_cpu, *args, **kwargs)
    if isinstance(result, str):
        return result
    return _moved(self, result, devices.resolve() if on_gpu else placement.of(self))


_SPECIAL: Dict[Any, Callable[..., Any]] = {
    _Tensor.to: _to,
    _Tensor.cuda: _cuda,
    _Tensor.cpu: _cpu,
    _Tensor.pin_memory: _pin_memory,
    _Tensor.is_cuda.__get__: _is_cuda,
    _Tensor.device.__get__: _device,
    _Tensor.get_device: _get_device,
    _Tensor.type: _type,
}
if hasattr(torch, "get_device"):
    _SPECIAL[torch.get_device] = _get_device
