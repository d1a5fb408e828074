"""Which tensors the script has put on a GPU.

All lie on the CPU. But a script that moves one to the GPU gets a copy from CUDA, and may change it in place; so it must
get one here. The storages of such tensors are remembered, and those of what is computed from them.
"""

import importlib
from typing import Any, Dict, Optional, Tuple

torch: Any = importlib.import_module("torch")
_reductions: Any = importlib.import_module("torch.multiprocessing.reductions")


_LEAST = 4096


class Placement:
    """Storages by address. A weak reference keeps the address from being given to another while it is in here."""

    def __init__(self) -> None:
        self._gpu: Dict[int, Tuple[Any, int]] = {}
        self._limit = _LEAST

    def of(self, tensor: Any) -> Optional[int]:
        """The index of the GPU, or None for the CPU."""
        storage = _storage(tensor)
        found = self._gpu.get(storage._cdata) if storage is not None else None
        return found[1] if found is not None else None

    def put(self, value: Any, index: int) -> None:
        """For a tensor, a storage, or some of them in a list or tuple."""
        if isinstance(value, (list, tuple)):
            for one in value:
                self.put(one, index)
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
        # A copy in one step: other threads may put theirs meanwhile.
        for address, (storage, _) in list(self._gpu.items()):
            if storage.expired():
                self._gpu.pop(address, None)
        self._limit = max(_LEAST, 2 * len(self._gpu))


def _storage(value: Any) -> Any:
    if isinstance(value, torch.UntypedStorage):
        return value
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        return value.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a tensor without memory of its own, as torch.func makes them
        return None


placement = Placement()
