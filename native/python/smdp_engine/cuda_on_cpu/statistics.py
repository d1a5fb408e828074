"""The properties and statistics of the emulated GPUs. Values that the CPU does not have are zero or refused."""

import importlib
import os
from collections import OrderedDict
from typing import Any, Dict, List, Tuple

from .devices import devices
from .not_emulated import NotEmulated

torch: Any = importlib.import_module("torch")

_NAME = "CPU emulating a CUDA GPU (--cuda-on-cpu)"
_KINDS = ("allocation", "segment", "active", "inactive_split")
_SIZES = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
_COUNTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


class Properties:
    """The host's properties. The compute capability is 0.0, below that of every GPU."""

    def __init__(self) -> None:
        self.name = _NAME
        self.major = self.minor = 0
        self.total_memory = memory()[1]
        self.multi_processor_count = len(os.sched_getaffinity(0))
        self.is_integrated = True
        self.is_multi_gpu_board = False

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name={self.name!r}, major=0, minor=0, total_memory={self.total_memory >> 20}MB, "
            f"multi_processor_count={self.multi_processor_count})"
        )


def memory(device: Any = None) -> Tuple[int, int]:
    """The host's free and total memory in bytes, which all emulated GPUs share."""
    devices.resolve(device)
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def properties(device: Any = None) -> Properties:
    devices.resolve(device)
    return Properties()


def name(device: Any = None) -> str:
    return properties(device).name


def capability(device: Any = None) -> Tuple[int, int]:
    devices.resolve(device)
    return (0, 0)


def zero(device: Any = None) -> int:
    """The bytes of GPU memory in use."""
    devices.resolve(device)
    return 0


def set_memory_fraction(fraction: float, device: Any = None) -> None:
    """The limit of a process's memory. 1 is none; a lower one is refused.

    Raises:
        TypeError, ValueError: it is not a float, or not between 0 and 1, as with CUDA.
    """
    devices.resolve(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    if fraction < 1:
        raise NotEmulated("torch.cuda.set_per_process_memory_fraction", "the limits of memory are those of the host")


def memory_fraction(device: Any = None) -> float:
    devices.resolve(device)
    return 1.0


def memory_statistics(device: Any = None) -> Dict[str, int]:
    devices.resolve(device)
    names = [
        f"{kind}.{pool}.{when}"
        for kind in sorted(_KINDS + _SIZES)
        for pool in ("all", "large_pool", "small_pool")
        for when in ("allocated", "current", "freed", "peak")
    ]
    return OrderedDict.fromkeys([*names, *_COUNTS], 0)


def summary(device: Any = None, abbreviated: bool = False) -> str:
    devices.resolve(device)
    return f"{_NAME}: no GPU memory is used"


def _generators() -> List[Any]:
    """A generator for each GPU. They store seeds and states; no operation draws numbers from them."""
    while len(_all_generators) < devices.count():
        _all_generators.append(torch.Generator())
    return _all_generators


_all_generators: List[Any] = []


class Generators:
    """``torch.cuda.default_generators``, for any number of GPUs."""

    def __getitem__(self, at: Any) -> Any:
        return tuple(_generators())[at]

    def __len__(self) -> int:
        return devices.count()


def _generator(device: Any) -> Any:
    return _generators()[devices.resolve(device)]


def manual_seed(seed: int) -> None:
    if devices.count():
        _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    _generator(None).seed()


def seed_all() -> None:
    manual_seed_all(_generator(None).seed())


def initial_seed() -> int:
    return int(_generator(None).initial_seed())


def get_rng_state(device: Any = "cuda") -> Any:
    return _generator(device).get_state()


def get_rng_state_all() -> List[Any]:
    return [get_rng_state(index) for index in range(devices.count())]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
