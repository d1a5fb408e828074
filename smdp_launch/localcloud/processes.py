"""Processes of simulated hosts, found through /proc."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def leave(code: int) -> NoReturn:
    """Exit without the interpreter's last collection: a third of the time of a process that imports much."""
    gc.freeze()
    sys.exit(code)


def _all() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def kill_processes_below(hosts: Path) -> None:
    """End whoever has a tree of this job as SMDP_ML_ROOT: what a host without namespaces can leave behind."""
    mark = b"SMDP_ML_ROOT=" + os.fsencode(hosts) + b"/"
    for process in _all():
        try:
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # another user's, or gone


def children(parent: int) -> list[int]:
    found = []
    for process in _all():
        try:
            # The command name before it, in parentheses, may itself hold spaces and parentheses.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(process.name))
    return found


def descendants(parent: int) -> list[int]:
    """Every process below `parent`, each before its own children."""
    found = children(parent)
    for process in found:
        found += children(process)
    return found


def variable(pid: int, name: str) -> str | None:
    """What the process was started with as the environment variable `name`."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    head = f"{name}=".encode()
    values = [os.fsdecode(one[len(head) :]) for one in environment if one.startswith(head)]
    return values[0] if values else None


def minds_sigterm(pid: int) -> bool:
    """Whether the process handles the signal, holds it back, or waits to fetch it: one that fetches has it neither
    caught nor blocked while it waits. The first process of a PID namespace loses the signal otherwise."""
    process = Path(f"/proc/{pid}")
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return False
    fetches = False
    with suppress(OSError):  # not everybody may see it
        fetches = "sigtimedwait" in (process / "wchan").read_text()
    masks = [line.split()[1] for line in lines if line.startswith(("SigCgt:", "SigBlk:"))]
    return fetches or any(int(mask, 16) & _SIGTERM_BIT for mask in masks)


def has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open: the holder of a lock that servers and supervisors keep for life does, and
    no process whose number a file claims, nor a zombie."""
    try:
        wanted = path.stat()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # gone, or another user's
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(descriptor.stat(), wanted):
                return True
    return False
