"""Autocast and GradScaler for "cuda", with torch's implementations for the CPU."""

import functools
import importlib
import sys
import warnings
from typing import Any

from .not_emulated import PAGE, NotEmulated

torch: Any = importlib.import_module("torch")

_autocast = torch.autocast
_init = _autocast.__init__
_is_enabled = torch.is_autocast_enabled
_by_device = hasattr(torch, "get_autocast_dtype")  # since torch 2.4
_gpu_dtype = functools.partial(torch.get_autocast_dtype, "cuda") if _by_device else torch.get_autocast_gpu_dtype


def apply() -> None:
    _autocast.__init__ = _autocast_init
    torch.is_autocast_enabled = _is_autocast_enabled
    torch.get_autocast_gpu_dtype = _current_dtype
    if _by_device:
        torch.get_autocast_dtype = _for_cuda(torch.get_autocast_dtype, _current_dtype)
        for module in (torch.amp, torch.amp.autocast_mode):
            module.custom_fwd = _on_cpu(module.custom_fwd)
            module.custom_bwd = _on_cpu(module.custom_bwd)
    scaler = getattr(torch.amp, "GradScaler", None)  # since torch 2.3
    if scaler is not None:
        scaler.__init__ = _scaler_init(scaler.__init__)
    else:
        torch.cuda.amp.GradScaler.__init__ = _refuse_scaler


def _autocast_init(
    self: Any, device_type: Any, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
) -> None:
    if device_type == "cuda":
        device_type, dtype = "cpu", _computed(_gpu_dtype() if dtype is None else dtype)
    _init(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _computed(dtype: Any) -> Any:
    return torch.bfloat16 if dtype == torch.float16 and not _takes_float16() else dtype


@functools.lru_cache(maxsize=None)
def _takes_float16() -> bool:
    """Whether torch has autocast to float16 on CPUs, which the first releases of torch 2 lack."""
    context = _autocast.__new__(_autocast)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _init(context, "cpu", dtype=torch.float16)
    if not context._enabled:
        sys.stderr.write(f"smdp: this torch has no float16 autocast on CPUs: using bfloat16 instead ({PAGE})\n")
    return bool(context._enabled)


def _cpu_is_enabled() -> bool:
    return bool(_is_enabled("cpu") if _by_device else torch.is_autocast_cpu_enabled())


def _is_autocast_enabled(device_type: Any = None) -> bool:
    return _cpu_is_enabled() if device_type in (None, "cuda") else bool(_is_enabled(device_type))


def _current_dtype() -> Any:
    """The type to which autocast casts here, or would cast."""
    return _cpu_dtype() if _cpu_is_enabled() else _gpu_dtype()


_cpu_dtype = functools.partial(torch.get_autocast_dtype, "cpu") if _by_device else torch.get_autocast_cpu_dtype


def _for_cuda(original: Any, answer: Any) -> Any:
    return lambda device_type: answer() if device_type == "cuda" else original(device_type)


def _on_cpu(original: Any) -> Any:
    @functools.wraps(original)
    def decorator(*function: Any, device_type: str, **others: Any) -> Any:
        return original(*function, device_type="cpu" if device_type == "cuda" else device_type, **others)

    return decorator


def _scaler_init(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    return init


def _refuse_scaler(self: Any, *args: Any, enabled: bool = True, **kwargs: Any) -> None:
    if enabled:
        raise NotEmulated("GradScaler", f"it needs torch 2.3 or newer on CPUs, this is {torch.__version__}")
    self._enabled = False
