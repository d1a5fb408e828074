"""Reaps orphans, as process 1 must: the kernel makes them its children."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")


def reap_orphans(keep: set[int]) -> int:
    """Reap exited children except those in `keep`, and return their number.

    The children are found in /proc, since waiting for any child would also consume the workers' exit codes.
    """
    reaped = 0
    for pid in _ended_children(os.getpid()) - keep:
        with contextlib.suppress(ChildProcessError):
            reaped += os.waitpid(pid, os.WNOHANG)[0] == pid
    return reaped


def _ended_children(parent: int) -> set[int]:
    return {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and _is_ended_child(entry, parent)}


def _is_ended_child(entry: Path, parent: int) -> bool:
    try:
        # "pid (name) state ppid ...": the name may contain any character, brackets too.
        fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] == b"Z" and int(fields[1]) == parent
