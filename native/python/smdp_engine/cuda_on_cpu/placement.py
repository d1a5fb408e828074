"""Which tensors the script has put on a GPU.

All tensors are on the CPU. But with CUDA a script that moves a tensor to the GPU gets a copy, which it may change in
place; so the emulation copies too. It records the storages of such tensors and of results computed from them.
"""

import importlib
from typing import Any, Dict, Optional, Tuple

torch: Any = importlib.import_module("torch")
_reductions: Any = importlib.import_module("torch.multiprocessing.reductions")


_MIN_LIMIT = 4096


class Placement:
    """Storages by address. A weak reference prevents the reuse of the address while it is recorded."""

    def __init__(self) -> None:
        self._gpu: Dict[int, Tuple[Any, int]] = {}
        self._limit = _MIN_LIMIT

    def of(self, tensor: Any) -> Optional[int]:
        """The index of the GPU, or None for the CPU."""
        storage = _storage(tensor)
        entry = self._gpu.get(storage._cdata) if storage is not None else None
        return entry[1] if entry is not None else None

    def put(self, value: Any, index: int) -> None:
        """Record the GPU of a tensor, a storage, or a list or tuple of them."""
        if isinstance(value, (list, tuple)):
            for item in value:
                self.put(item, index)
            return
        storage = _storage(value)
        if storage is not None and self._gpu.get(storage._cdata, (None, None))[1] != index:
            self._gpu[storage._cdata] = (_reductions.StorageWeakRef(storage), index)
            self._sweep()

    def of_any(self, values: Any) -> Optional[int]:
        for value in values:
            if isinstance(value, torch.Tensor):
                index = self.of(value)
            elif isinstance(value, (list, tuple)):
                index = self.of_any(value)
            else:
                continue
            if index is not None:
                return index
        return None

    def _sweep(self) -> None:
        if len(self._gpu) < self._limit:
            return
        # A copy in one step: other threads may add entries meanwhile.
        for address, (storage, _) in list(self._gpu.items()):
            if storage.expired():
                self._gpu.pop(address, None)
        self._limit = max(_MIN_LIMIT, 2 * len(self._gpu))


def _storage(value: Any) -> Any:
    if isinstance(value, torch.UntypedStorage):
        return value
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        return value.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a tensor without its own memory, such as torch.func's
        return None


placement = Placement()
