"""Takes over the duty of process 1: orphans become its children, and somebody must collect them when they end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")


def reap_orphans(keep: set[int]) -> int:
    """Collect ended children except those in `keep`, whose exit is somebody else's to read; the number collected.

    They are found in /proc one by one, since `wait` for any child would also take the workers' exit codes.
    """
    reaped = 0
    for pid in _ended_children(os.getpid()) - keep:
        with contextlib.suppress(ChildProcessError):
            reaped += os.waitpid(pid, os.WNOHANG)[0] == pid
    return reaped


def _ended_children(parent: int) -> set[int]:
    found = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _is_ended_child(entry, parent):
            found.add(int(entry.name))
    return found


def _is_ended_child(entry: Path, parent: int) -> bool:
    try:
        # "pid (name) state ppid ...": the name may hold anything, brackets too.
        fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] == b"Z" and int(fields[1]) == parent
