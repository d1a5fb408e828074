"""``torch.cuda``, and other parts of torch that use a GPU outside of the functions that a mode intercepts."""

import contextlib
import functools
import importlib
from typing import Any, Callable, Dict

from . import amp, mode, parallel, profiling, statistics, streams, tensor_types
from .devices import devices
from .not_emulated import NotEmulated
from .placement import placement
from .profiling import no_op

torch: Any = importlib.import_module("torch")

_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")


def apply() -> None:
    """Patch torch permanently in this process."""
    with contextlib.suppress(RuntimeError):
        # Once torch sees the emulated GPUs, it finds their compute capability too low for its cuDNN.
        torch.backends.cudnn.version()
    _replace(torch.cuda, _CUDA)
    for name in ("memory", "random", "streams"):
        module = importlib.import_module(f"torch.cuda.{name}")
        _replace(module, {member: value for member, value in _CUDA.items() if hasattr(module, member)})
    _refuse_the_rest(torch.cuda, _UNCHANGED | set(_CUDA))
    for name in ("graphs", "nccl", "memory"):
        _refuse_the_rest(importlib.import_module(f"torch.cuda.{name}"), set(_CUDA))
    _replace(torch.cuda.nccl, {"version": lambda: (0, 0, 0), "unique_id": _refusal("torch.cuda.nccl.unique_id")})
    _replace(torch.cuda.memory, dict.fromkeys(("_record_memory_history", "_snapshot", "_dump_snapshot"), _no_snapshot))
    if hasattr(torch, "accelerator"):  # since torch 2.6
        _replace(torch.accelerator, _ACCELERATOR)
    for name in _TYPES:
        setattr(torch.cuda, f"{name}Tensor", tensor_types.on_gpu(name))
    torch.set_default_tensor_type = tensor_types.set_default(torch.set_default_tensor_type)
    torch.Generator = _Generator
    torch.Tensor.record_stream = no_op  # torch checks the stream's type before it calls the mode
    torch.UntypedStorage.cuda = _storage_to_gpu
    torch.serialization.register_package(5, lambda _storage: None, _restore)
    _on_cpu(importlib.import_module("torch.utils._device"))
    amp.apply()
    parallel.apply()
    profiling.apply()
    mode.turn_on()


def _replace(module: Any, members: Dict[str, Any]) -> None:
    for name, value in members.items():
        setattr(module, name, value)


def _refuse_the_rest(module: Any, emulated: Any) -> None:
    """Make every other public function and class raise NotEmulated; newer releases of torch may add some."""
    for name in set(getattr(module, "__all__", ())) - set(emulated):
        value = getattr(module, name, None)
        if isinstance(value, type):
            setattr(module, name, type(name, (), {"__new__": _refusal(f"{module.__name__}.{name}")}))
        elif callable(value):
            setattr(module, name, _refusal(f"{module.__name__}.{name}"))


def _refusal(what: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise NotEmulated(what)

    return refuse


_no_snapshot = _refusal("a snapshot of GPU memory")


def _synchronize(device: Any = None) -> None:
    devices.resolve(device)


class _Device:
    """``with torch.cuda.device(index)``; None and negative indices change nothing, as with CUDA."""

    def __init__(self, device: Any) -> None:
        none = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if none else devices.resolve(device)

    def __enter__(self) -> None:
        self.prev_idx = devices.current()
        if self.idx >= 0:
            devices.choose(self.idx)

    def __exit__(self, *_error: Any) -> None:
        devices.choose(self.prev_idx)


def _device_of(tensor: Any) -> _Device:
    index = placement.of(tensor)
    return _Device(-1 if index is None else index)


def _set_device(device: Any) -> None:
    if not (isinstance(device, int) and device < 0):
        devices.choose(devices.resolve(device))


def _set_sync_debug_mode(debug_mode: Any) -> None:
    if debug_mode not in (0, "default"):
        raise NotEmulated(f"torch.cuda.set_sync_debug_mode({debug_mode!r})", "no operation of a CPU waits for a GPU")


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc]
    """Makes torch's own generators instances of the class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(torch._C.Generator, metaclass=_GeneratorType):  # type: ignore[misc]
    """A generator for a GPU is one for the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator("cpu" if devices.index(device) is not None else device)


def _storage_to_gpu(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    copy = self.clone()
    placement.put(copy, devices.resolve(device))
    return copy


def _restore(storage: Any, location: str) -> Any:
    """Restore a storage that a file or `map_location` places on a GPU."""
    index = devices.index(location)
    if index is None:
        return None
    placement.put(storage, index)
    return storage


def _on_cpu(module: Any) -> None:
    """Support `with torch.device("cuda")` and the default device."""
    context, constructors = module.DeviceContext, module._device_constructors()
    init, call = context.__init__, context.__torch_function__

    @functools.wraps(init)
    def on_cpu(self: Any, device: Any) -> None:
        init(self, device)
        self.gpu = devices.index(self.device)
        if self.gpu is not None:
            self.device = torch.device("cpu")

    @functools.wraps(call)
    def placed(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_default = (kwargs or {}).get("device") is None  # checked before the call, which sets it
        result = call(self, func, types, args, kwargs)
        if self.gpu is not None and is_default and func in constructors:
            placement.put(result, self.gpu)
        return result

    context.__init__, context.__torch_function__ = on_cpu, placed


_UNCHANGED = {"amp", "check_error", "cudaStatus", "CudaError", "DeferredCudaCallError", "has_half", "has_magma"}
_UNCHANGED |= {f"{name}{kind}" for name in (*_TYPES, "ComplexFloat", "ComplexDouble") for kind in ("Tensor", "Storage")}
_MEMORY: Dict[str, Any] = {
    **dict.fromkeys(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), statistics.zero
    ),
    **dict.fromkeys(("memory_cached", "max_memory_cached"), statistics.zero),
    **dict.fromkeys(("reset_max_memory_allocated", "reset_max_memory_cached"), statistics.zero),
    "reset_peak_memory_stats": _synchronize,
    "reset_accumulated_memory_stats": _synchronize,
    "memory_stats": statistics.memory_statistics,
    "empty_cache": no_op,
}
_CUDA: Dict[str, Any] = {
    **_MEMORY,
    "memory_summary": statistics.summary,
    "mem_get_info": statistics.memory,
    "ipc_collect": no_op,
    "is_available": lambda: devices.count() > 0,
    "device_count": devices.count,
    "current_device": devices.current,
    "set_device": _set_device,
    "device": _Device,
    "device_of": _device_of,
    "init": devices.init,
    "_lazy_init": devices.init,
    "is_initialized": lambda: devices.initialized,
    "synchronize": _synchronize,
    "get_device_name": statistics.name,
    "get_device_properties": statistics.properties,
    "get_device_capability": statistics.capability,
    "can_device_access_peer": lambda device, peer_device: False,
    "get_arch_list": list,
    "get_gencode_flags": str,
    "get_sync_debug_mode": lambda: 0,
    "set_sync_debug_mode": _set_sync_debug_mode,
    "set_per_process_memory_fraction": statistics.set_memory_fraction,
    "get_per_process_memory_fraction": statistics.memory_fraction,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_tf32_supported": lambda: False,
    "is_current_stream_capturing": lambda: False,
    "Stream": streams.Stream,
    "Event": streams.Event,
    "StreamContext": streams.StreamContext,
    "stream": streams.StreamContext,
    "set_stream": streams.set_stream,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "default_generators": statistics.Generators(),
    "manual_seed": statistics.manual_seed,
    "manual_seed_all": statistics.manual_seed_all,
    "seed": statistics.seed,
    "seed_all": statistics.seed_all,
    "initial_seed": statistics.initial_seed,
    "get_rng_state": statistics.get_rng_state,
    "get_rng_state_all": statistics.get_rng_state_all,
    "set_rng_state": statistics.set_rng_state,
    "set_rng_state_all": statistics.set_rng_state_all,
}
_ACCELERATOR: Dict[str, Any] = {
    **{name: value for name, value in _MEMORY.items() if hasattr(getattr(torch, "accelerator", None), name)},
    "is_available": _CUDA["is_available"],
    "device_count": devices.count,
    "current_accelerator": lambda check_available=False: torch.device("cuda") if devices.count() else None,
    "current_device_index": devices.current,
    "current_device_idx": devices.current,
    "set_device_index": _set_device,
    "set_device_idx": _set_device,
    "device_index": _Device,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": _synchronize,
    "get_memory_info": statistics.memory,
}
