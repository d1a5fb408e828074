"""Copies of large tensors between the processor's memories.

A copy of torch fetches the lines of the target that it overwrites, a third of its traffic, and leaves in the caches
what only a disk will read. The engine's copy does neither.
"""

import ctypes
import functools
from typing import Any, Callable, Optional

from .._library import library

#: Bytes. A smaller tensor is copied within the caches.
_LEAST = 1 << 20


def copy_to(buffer: Any, data: Any) -> bool:
    """Copy the tensor ``data`` to ``buffer``, a contiguous one of the same type and shape. False if torch has to."""
    size = data.numel() * data.element_size()
    if size < _LEAST or data.device.type != "cpu" or not data.is_contiguous() or data.is_conj() or data.is_neg():
        return False
    copy = _streaming_copy()
    if copy is None:
        return False
    copy(buffer.data_ptr(), data.data_ptr(), size)
    return True


@functools.lru_cache(maxsize=None)
def _streaming_copy() -> Optional[Callable[[int, int, int], None]]:
    """None without the compiled part of this package, or with one that has no such function."""
    try:
        copy = library().smdp_copy_streaming
    except (OSError, AttributeError, RuntimeError):
        return None
    copy.argtypes, copy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
    found: Callable[[int, int, int], None] = copy
    return found
