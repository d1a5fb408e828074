"""Detects a full disk and reports it with one message everywhere."""

from __future__ import annotations

import errno
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: BaseException | None) -> bool:
    """Whether a write failed because the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def full(folder: Path) -> str:
    """The message when the disk of ``folder`` is full."""
    return f"disk full in {folder}: free space there, then try again"


def why(error: OSError, path: Path) -> str:
    """Why the file or folder ``path`` could not be written."""
    return full(path.absolute().parent) if is_full(error) else error.strerror or str(error)
