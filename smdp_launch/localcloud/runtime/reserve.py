"""Disk space for the small files of a job: allocated when the job is created, released when the disk is full.

With it a job on a full disk can still report that the disk is full, and can be stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from smdp_launch.disk import is_full
from smdp_launch.localcloud.layout import JobFolder

_SIZE = 64 * 1024  # bytes; a state file has 2 KiB, and the old file stays until the new one is whole


def allocate(folder: JobFolder) -> None:
    """Raises OSError where the disk has no space for it."""
    with folder.reserve.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, _SIZE)


def write(folder: JobFolder, action: Callable[[], None]) -> None:
    """Do `action`, which writes a small file. Where the disk is full, release the reserve and retry once."""
    try:
        action()
    except OSError as error:
        if not is_full(error):
            raise
        folder.reserve.unlink(missing_ok=True)
        action()
