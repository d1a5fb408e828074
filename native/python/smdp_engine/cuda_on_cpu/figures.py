"""What is told about the imitated GPUs. No figure is invented: what the CPU has no measure of is zero, or refused."""

import importlib
import os
from collections import OrderedDict
from typing import Any, Dict, List, Tuple

from .devices import devices

torch: Any = importlib.import_module("torch")

_NAME = "CPU imitating a CUDA GPU (--cuda-on-cpu)"
_KINDS = ("allocation", "segment", "active", "inactive_split")
_SIZES = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
_COUNTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


class Properties:
    """Of the host, which is what computes. No compute capability: 0.0, below that of every GPU."""

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
    """The host's, which its GPUs would share: free and in all, in bytes."""
    devices.meant(device)
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def properties(device: Any = None) -> Properties:
    devices.meant(device)
    return Properties()


def name(device: Any = None) -> str:
    return properties(device).name


def capability(device: Any = None) -> Tuple[int, int]:
    devices.meant(device)
    return (0, 0)


def zero(device: Any = None) -> int:
    """Bytes of a GPU's memory: there is none."""
    devices.meant(device)
    return 0


def statistics(device: Any = None) -> Dict[str, int]:
    devices.meant(device)
    names = [
        f"{kind}.{pool}.{when}"
        for kind in sorted(_KINDS + _SIZES)
        for pool in ("all", "large_pool", "small_pool")
        for when in ("allocated", "current", "freed", "peak")
    ]
    return OrderedDict.fromkeys([*names, *_COUNTS], 0)


def summary(device: Any = None, abbreviated: bool = False) -> str:
    devices.meant(device)
    return f"{_NAME}: no memory of a GPU is used"


def _generators() -> List[Any]:
    """One for each GPU there may be. They keep seeds and states, and no operation draws from them."""
    while len(_made) < devices.count():
        _made.append(torch.Generator())
    return _made


_made: List[Any] = []


class Generators:
    """``torch.cuda.default_generators``, however many GPUs there turn out to be."""

    def __getitem__(self, at: Any) -> Any:
        return tuple(_generators())[at]

    def __len__(self) -> int:
        return devices.count()


def _generator(device: Any) -> Any:
    return _generators()[devices.meant(device)]


def manual_seed(seed: int) -> None:
    if devices.count():
        _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for one in _generators():
        one.manual_seed(int(seed))


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
