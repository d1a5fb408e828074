"""An exclusive lock on an open file, which ends with the process that holds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl

    HAS_FLOCK = True
except ModuleNotFoundError:  # on Windows
    HAS_FLOCK = False

_POLL = 0.02  # seconds


class LockTimeout(Exception):
    """Another process held the lock for the whole time."""


@contextmanager
def locked(file: int, path: Path, timeout: float = 0.0) -> Iterator[None]:
    """Hold the lock of the file ``path``, whose open descriptor is ``file``.

    On Windows a lock on the file itself would prevent others from reading it. There the lock is a file beside it, which
    exists while it is held.

    Args:
        timeout: seconds to wait for a process that holds the lock.

    Raises:
        LockTimeout: another process held it for ``timeout`` seconds.
    """
    if not HAS_FLOCK:
        with _locked_beside(path, timeout):
            yield
        return
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockTimeout from None
        time.sleep(_POLL)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _locked_beside(path: Path, timeout: float) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=timeout, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise LockTimeout from None
    try:
        yield
    finally:
        lock.release()
