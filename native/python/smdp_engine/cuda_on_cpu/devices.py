"""The emulated GPUs: their number, the current one of each thread, and the one that an argument means."""

import importlib
import os
import threading
from typing import Any, Dict, List, Optional

torch: Any = importlib.import_module("torch")


class _Current(threading.local):
    """The current GPU and streams of each thread, as in CUDA."""

    def __init__(self) -> None:
        self.index = 0
        self.streams: List[Any] = []


class Devices:
    """One GPU for each worker of the host, without those that CUDA_VISIBLE_DEVICES hides."""

    def __init__(self) -> None:
        self._current = _Current()
        self.initialized = False
        self._cpu_devices: Dict[int, Any] = {}

    def count(self) -> int:
        workers = int(os.environ.get("LOCAL_WORLD_SIZE") or "1")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return workers if visible is None else _visible(visible, workers)

    def current(self) -> int:
        self.init()
        return self._current.index

    @property
    def streams(self) -> List[Any]:
        """The streams that this thread has entered, innermost last."""
        return self._current.streams

    def named(self, index: int) -> Any:
        return torch.device("cuda", index)

    def cpu_device(self, index: int) -> Any:
        """The device of the tensors on a GPU: the CPU device, as an object that identifies the GPU.

        So ``x.to(weight.device)`` moves x to the GPU of the weight, and in all else the device behaves as the CPU.
        """
        return self._cpu_devices.setdefault(index, torch.device("cpu"))

    def choose(self, index: int) -> None:
        self._current.index = self._checked(index)

    def init(self) -> None:
        if self.count() == 0:
            raise RuntimeError("No CUDA GPUs are available: CUDA_VISIBLE_DEVICES hides all emulated GPUs")
        self.initialized = True

    def index(self, device: Any) -> Optional[int]:
        """The index of the GPU that an argument named ``device`` means; None if it means no GPU.

        Raises:
            RuntimeError: the GPU does not exist, as with CUDA.
        """
        if isinstance(device, str) and device.startswith("cuda"):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != "cuda":
                return next((index for index, cpu_device in self._cpu_devices.items() if cpu_device is device), None)
            device = self.current() if device.index is None else device.index
        if isinstance(device, int) and not isinstance(device, bool):
            return self._checked(device)
        return None

    def resolve(self, device: Any = None) -> int:
        """The index of the GPU for functions of ``torch.cuda``, where None is the current GPU.

        The CPU device of a tensor means the current GPU too.
        """
        index = self.index(device)
        if index is not None:
            return index
        if device is None or torch.device(device).type == "cpu":
            return self.current()
        raise ValueError(f"Expected a cuda device, but got: {device}")

    def _checked(self, index: int) -> int:
        self.init()
        if not 0 <= index < self.count():
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: there is no cuda:{index}, this host emulates {self.count()} "
                "GPUs, one for each worker; use the GPU with the worker's local rank"
            )
        return index


def _visible(text: str, workers: int) -> int:
    """The number of GPUs in CUDA_VISIBLE_DEVICES. As in CUDA, entries after an invalid one do not count."""
    count = 0
    for entry in text.split(","):
        if not entry.strip().isdecimal() or int(entry) >= workers:
            break
        count += 1
    return count


devices = Devices()
