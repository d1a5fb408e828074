"""A file system of a few MiB that a test can fill and empty."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_for


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Write until no further byte fits."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def mounted(folder: Path, size: str = "8m") -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("to mount a file system needs root")
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        yield SmallDisk(folder)
    finally:
        unmounting = ["umount", str(folder)]
        wait_for(
            lambda: subprocess.run(unmounting, check=False, capture_output=True).returncode == 0, f"the end of {folder}"
        )
