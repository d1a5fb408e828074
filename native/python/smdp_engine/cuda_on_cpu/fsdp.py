"""FullyShardedDataParallel, torch's first version.

It shards on one GPU of each rank: that of ``device_id``, that of the module, or the current one.
"""

import functools
import importlib
from typing import Any, Callable, Dict

from ..timing.after_import import after_import
from .devices import devices
from .placement import placement

torch: Any = importlib.import_module("torch")


def apply() -> None:
    """Patch the class when the script imports it: the import takes as long as that of torch."""
    after_import({"torch.distributed.fsdp.fully_sharded_data_parallel": _patch})


def _patch(sharded: Any) -> None:
    parts: Any = importlib.import_module("torch.distributed.fsdp._init_utils")
    sharded.FullyShardedDataParallel.__init__ = _init(sharded.FullyShardedDataParallel.__init__)
    for name, wrap in _WRAPPERS.items():
        for module in (sharded, parts):
            if hasattr(module, name):  # releases of torch differ
                setattr(module, name, wrap(getattr(module, name)))


def _init(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, module: Any, *args: Any, device_id: Any = None, **kwargs: Any) -> None:
        if device_id is None:
            index = placement.of_any(module.parameters())
            device_id = devices.current() if index is None else index
        index = devices.index(device_id)
        # The CPU's device if the script names the CPU.
        device_id = device_id if index is None else devices.cpu_device(index)
        original(self, module, *args, device_id=device_id, **kwargs)

    return init


def _compute_device(original: Any) -> Any:
    """The device of ``device_id``. The original derives it from parameters, which are on the CPU."""

    def compute_device(module: Any, ignored: Any, device: Any, *more: Any) -> Any:
        return original(module, ignored, device, *more) if devices.index(device) is None else device

    return compute_device


def _check_states(original: Any) -> Any:
    """``sync_module_states`` needs parameters and buffers on a GPU."""

    def check(module_states: Any) -> None:
        if any(placement.of(state) is None for state in module_states):
            original(module_states)

    return check


def _device_handle(original: Any) -> Any:
    """``torch.cuda``, whose number of GPUs divides the ranks into hosts for HYBRID_SHARD."""

    def init(state: Any, module: Any, ignored: Any, device_id: Any) -> Any:
        original(state, module, ignored, device_id)
        if devices.index(device_id) is not None:
            state._device_handle = torch.cuda
        return state

    return init


_WRAPPERS: Dict[str, Callable[[Any], Any]] = {
    "_get_compute_device": _compute_device,
    "_check_module_states_for_sync_module_states": _check_states,
    "_init_device_handle": _device_handle,
}
