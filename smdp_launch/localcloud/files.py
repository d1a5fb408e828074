"""Files that several processes share: JSON written in one piece, advisory locks, and trees to remove."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdp_launch.private_files import open_file, read_bytes, write_bytes


def write_json(path: Path, value: object, mode: int = 0o600) -> None:
    write_bytes(path, json.dumps(value, ensure_ascii=False).encode(), mode)


def read_json(path: Path) -> Any:
    """The parsed file, or None where it does not exist or is not whole."""
    try:
        return json.loads(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


class Lock:
    """An advisory lock on a file, held until `release` or the end of every process that has the descriptor.

    The kernel frees it however a process ends, so a held lock proves that the server, client or supervisor is alive.
    Two `Lock` objects exclude each other even inside one process.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock, or change its kind, without waiting; False where another process prevents it."""
        import fcntl  # other systems import this module too, and take no lock

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, deadline: float, *, shared: bool = False) -> bool:
        """As `take`, but retry until `deadline` (of `time.monotonic`)."""
        while not self.take(shared=shared):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def fileno(self) -> int:
        return self._descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on `path` exclusively."""
    if not path.exists():
        return False
    try:
        lock = Lock(path)
    except FileNotFoundError:  # its folder was removed meanwhile
        return False
    try:
        return not lock.take(shared=True)
    finally:
        lock.release()


def remove_tree(path: Path) -> None:
    """Remove a tree that a training script has filled; folders without permissions are removed too."""

    def retry(function: Callable[..., Any], name: str, _error: object) -> None:
        parent = Path(name).parent
        try:
            parent.chmod(stat.S_IRWXU)
            if not Path(name).is_symlink():
                Path(name).chmod(stat.S_IRWXU)
            if function in (os.scandir, os.open, os.listdir):
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)
        except OSError:
            return

    shutil.rmtree(path, onerror=retry)
