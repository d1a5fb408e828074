"""Opens a file below a folder without following a link: none leads out of the folder, even if it appears meanwhile.

The kernel of the host follows the links itself, inside the host.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache

_OPENAT2 = 437  # the same number on every architecture; Linux 5.6
_NO_LINKS_AND_BELOW = 0x02 | 0x04 | 0x08


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)  # at the first call: no other system has it


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_below(folder: int, path: bytes, flags: int) -> int:
    """A descriptor of `path` below the open folder. With O_PATH and O_NOFOLLOW it may be a link itself.

    Raises OSError; ELOOP where the path contains a link.
    """
    how = _How(flags, 0, _NO_LINKS_AND_BELOW)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    opened: int = _library().syscall(ctypes.c_long(_OPENAT2), folder, path, ctypes.byref(how), size)
    if opened >= 0:
        return opened
    number = ctypes.get_errno()
    # Filters of system calls, as in older containers, refuse what they do not know.
    if number in (errno.ENOSYS, errno.EPERM):
        return _walk(folder, path, flags)
    raise OSError(number, os.strerror(number))


def _walk(folder: int, path: bytes, flags: int) -> int:
    *parents, name = path.split(b"/")
    located = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
    current = os.dup(folder)
    try:
        for part in parents:
            outer = current
            current = os.open(part, located, dir_fd=outer)
            os.close(outer)
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        os.close(current)
