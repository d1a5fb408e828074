"""Find and end the processes of simulated hosts through /proc."""

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


def exit_fast(code: int) -> NoReturn:
    """Exit without the last garbage collection, which takes a third of the run time of a process with many imports."""
    gc.freeze()
    sys.exit(code)


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def kill_processes_below(hosts: Path) -> None:
    """Kill all processes whose SMDP_ML_ROOT is below `hosts`: a host without namespaces can leave them behind."""
    setting = b"SMDP_ML_ROOT=" + os.fsencode(hosts) + b"/"
    for process in _processes():
        try:
            if setting in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # another user's process, or an ended one


def children(parent: int) -> list[int]:
    found = []
    for process in _processes():
        try:
            # The command name before these fields, in parentheses, may contain spaces and parentheses.
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


def memory_below(parent: int) -> int:
    """Bytes of memory of all processes below `parent`; a page that several of them share counts once in all."""
    parents: dict[int, int] = {}
    for process in _processes():
        with suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found, waiting = 0, [pid for pid, above in parents.items() if above == parent]
    while waiting:
        pid = waiting.pop()
        waiting += [one for one, above in parents.items() if above == pid]
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found


def variable(pid: int, name: str) -> str | None:
    """The environment variable `name` with which the process was started."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    head = f"{name}=".encode()
    values = [os.fsdecode(one[len(head) :]) for one in environment if one.startswith(head)]
    return values[0] if values else None


def handles_sigterm(pid: int) -> bool:
    """Whether the process catches SIGTERM, blocks it, or waits for it in sigtimedwait, which unblocks it meanwhile.

    Otherwise the first process of a PID namespace loses the signal.
    """
    process = Path(f"/proc/{pid}")
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return False
    is_waiting = False
    with suppress(OSError):  # reading it may not be permitted
        is_waiting = "sigtimedwait" in (process / "wchan").read_text()
    masks = [line.split()[1] for line in lines if line.startswith(("SigCgt:", "SigBlk:"))]
    return is_waiting or any(int(mask, 16) & _SIGTERM_BIT for mask in masks)


def hang_signal() -> int:
    """At which a worker stops in a rehearsed hang: no common library uses it, nor the entrypoint for stacks."""
    return signal.SIGRTMAX - 8


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line.startswith("SigCgt:"))


def command_line(pid: int) -> list[str]:
    """The arguments of the process; none if it has ended."""
    try:
        return [os.fsdecode(one) for one in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []


def has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open.

    With a lock that a server or supervisor holds while it runs, this shows that a recorded process id is still that of
    the lock's holder, not of a zombie or another process.
    """
    try:
        target = path.stat()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # ended, or another user's process
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(descriptor.stat(), target):
                return True
    return False
