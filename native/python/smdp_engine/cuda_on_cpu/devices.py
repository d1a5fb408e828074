"""The imitated GPUs: how many there are, which one a thread has chosen, and which one an argument means."""

import importlib
import os
import threading
from typing import Any, Dict, List, Optional

torch: Any = importlib.import_module("torch")


class _Chosen(threading.local):
    """By each thread for itself, as with CUDA."""

    def __init__(self) -> None:
        self.index = 0
        self.streams: List[Any] = []


class Devices:
    """As many as the host has workers, less those that CUDA_VISIBLE_DEVICES hides."""

    def __init__(self) -> None:
        self._chosen = _Chosen()
        self.initialized = False
        self._homes: Dict[int, Any] = {}

    def count(self) -> int:
        workers = int(os.environ.get("LOCAL_WORLD_SIZE") or "1")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return workers if visible is None else _visible(visible, workers)

    def current(self) -> int:
        self.init()
        return self._chosen.index

    @property
    def streams(self) -> List[Any]:
        """Those that this thread has entered, innermost last."""
        return self._chosen.streams

    def named(self, index: int) -> Any:
        return torch.device("cuda", index)

    def home(self, index: int) -> Any:
        """The device of the tensors of a GPU: the CPU, but an object that is known again where tensors are to go to it.

        So ``x.to(weight.device)`` goes to the GPU of the weight, and every question is answered as for the CPU.
        """
        return self._homes.setdefault(index, torch.device("cpu"))

    def choose(self, index: int) -> None:
        self._chosen.index = self._checked(index)

    def init(self) -> None:
        if self.count() == 0:
            raise RuntimeError("No CUDA GPUs are available: CUDA_VISIBLE_DEVICES hides those that are imitated")
        self.initialized = True

    def index(self, device: Any) -> Optional[int]:
        """Of the GPU that an argument named ``device`` means; None if it means something else.

        Raises:
            RuntimeError: there is no such GPU, as with CUDA.
        """
        if isinstance(device, str) and device.startswith("cuda"):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != "cuda":
                return next((index for index, home in self._homes.items() if home is device), None)
            device = self.current() if device.index is None else device.index
        if isinstance(device, int) and not isinstance(device, bool):
            return self._checked(device)
        return None

    def meant(self, device: Any = None) -> int:
        """The same for functions of ``torch.cuda``, where None is the current GPU.

        A tensor's own device, which is the CPU, is taken for the current GPU too.
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
                f"CUDA error: invalid device ordinal: there is no cuda:{index}, this host imitates {self.count()} "
                "GPUs, one for each worker; the worker's own is the one of its local rank"
            )
        return index


def _visible(text: str, workers: int) -> int:
    """As CUDA reads it: what stands behind a number that is none of a GPU does not count."""
    count = 0
    for one in text.split(","):
        if not one.strip().isdecimal() or int(one) >= workers:
            break
        count += 1
    return count


devices = Devices()
