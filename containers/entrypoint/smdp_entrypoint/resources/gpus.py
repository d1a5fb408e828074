"""Use and memory of the host's GPUs, from NVIDIA's management library. Without it there are no such fields."""

from __future__ import annotations

from typing import Any

_LIBRARY = "libnvidia-ml.so.1"


class Gpus:
    """All GPUs of the host. A GPU that reports an error is left out of a sample."""

    def __init__(self, library: Any, devices: list[Any]) -> None:
        self._library = library
        self._devices = devices

    @classmethod
    def open(cls, name: str = _LIBRARY) -> Gpus | None:
        """None if the library is absent, is another one, or finds no GPU."""
        try:
            from ctypes import CDLL, byref, c_uint, c_void_p

            library = CDLL(name)
            if library.nvmlInit_v2() != 0:
                return None
            count = c_uint()
            if library.nvmlDeviceGetCount_v2(byref(count)) != 0:
                return None
            devices = []
            for index in range(count.value):
                device = c_void_p()
                if library.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device)) == 0:
                    devices.append(device)
        except (ImportError, OSError, AttributeError):  # a Python without ctypes, no library, no such function
            return None
        return cls(library, devices) if devices else None

    @property
    def count(self) -> int:
        return len(self._devices)

    def use(self) -> float | None:
        """The part of the time in which a GPU was busy, from 0 to 1: the mean of the GPUs over the last second or
        less; None if no GPU reports it, as in MIG mode."""
        from ctypes import c_uint

        values = (c_uint * 2)()  # of the processors and of the memory, in percent
        busy = [
            values[0] / 100
            for device in self._devices
            if self._call("nvmlDeviceGetUtilizationRates", device, values) and values[0] <= 100
        ]
        return sum(busy) / len(busy) if busy else None

    def memory(self) -> tuple[int, int] | None:
        """The bytes in use and all bytes, of all GPUs together; None if no GPU reports them."""
        from ctypes import c_ulonglong

        values = (c_ulonglong * 3)()  # total, free, used
        sizes = [
            (values[2], values[0]) for device in self._devices if self._call("nvmlDeviceGetMemoryInfo", device, values)
        ]
        return (sum(used for used, _ in sizes), sum(total for _, total in sizes)) if sizes else None

    def _call(self, function: str, device: Any, values: Any) -> bool:
        try:
            return bool(getattr(self._library, function)(device, values) == 0)
        except AttributeError:
            return False
