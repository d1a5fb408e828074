"""Sends SIGTERM to the processes of a worker that have to act on it, and finds those that still run.

A worker's session contains its program, perhaps shells and launchers that started it, and helper processes such as
those of a DataLoader. A program whose helper dies may be unable to save its state: torch raises an exception. So a
process gets the signal only if no other process is responsible for it:

- the worker itself
- a process whose parent has exited, as a shell or a launcher that does not handle the signal does
- a child of a shell, when the shell gets the signal: a shell does not forward it, and runs its trap only after the
  child has exited. What the trap starts does not get it.

The other processes that a shell started may be needed while the script saves. So one that does not handle the signal
gets it only after those that handle it have exited. And one that reads the output of another process, as `tee` and a
loop of the shell do in a pipeline, gets it only if it still runs some seconds after the last such process has exited:
it normally exits at the end of its input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from pathlib import Path
from typing import Collection, Dict, Mapping, Tuple

_SHELLS = frozenset(["ash", "bash", "busybox", "dash", "fish", "ksh", "ksh93", "mksh", "sh", "zsh"])
_PROC = Path("/proc")
_SIGTERM_BIT = 1 << (signal.SIGTERM - 1)
# A process has this long to read and store the rest of its input.
_READ_S = 5.0

#: The running processes of a session: process ID -> process ID of the parent.
Members = Dict[int, int]
#: The device and the inode of a pipe.
Pipe = Tuple[int, int]


class Termination:
    """SIGTERM to some workers, in the course of their end. `workers` are processes that lead a session and are not
    reaped yet. `shells` are those of the workers that are shells. `is_waiting` is False if there is nothing to do until
    another worker exits."""

    def __init__(self, workers: Collection[int]) -> None:
        self.shells: set[int] = set()
        self.is_waiting = True
        self._workers = set(workers)
        self._found: set[int] = set()
        self._signalled: set[int] = set()
        self._fed: dict[int, float] = {}  # when another process could last write to the process's input

    def proceed(self) -> set[int]:
        """Signal the processes that have to get the signal now; return the workers of which a process still runs."""
        sessions = self._sessions()
        self.shells.update(worker for worker, members in sessions.items() if worker in members and _is_shell(worker))
        for worker, members in sessions.items():
            for pid in sorted(self._next(worker, members)):
                self._signalled.add(pid)
                _send(pid, signal.SIGTERM)
        left = {worker for worker, members in sessions.items() if members}
        self.is_waiting = any(worker in self.shells or worker not in sessions[worker] for worker in left)
        return left

    def kill(self) -> None:
        """SIGKILL to all processes, also to those in a process group of their own."""
        for members in self._sessions().values():
            for pid in members:
                _send(pid, signal.SIGKILL)

    def _next(self, worker: int, members: Members) -> set[int]:
        self._find(worker, members)
        found = self._found & members.keys()
        found -= self._readers(found - self._signalled, members)
        at_once = {pid for pid in found if pid == worker or _is_shell(pid)}
        handling = {pid for pid in found - at_once if _handles(pid)}
        # The worker gets it also if this system's /proc does not show it.
        return ({worker} | at_once | (handling or found)) - self._signalled

    def _find(self, worker: int, members: Members) -> None:
        """Add the processes for which no other process is responsible to `_found`."""
        if worker in members and worker not in self.shells:
            self._found.add(worker)
            return
        waiting = [pid for pid, parent in members.items() if parent not in members and pid not in self._found]
        while waiting:
            pid = waiting.pop()
            self._found.add(pid)
            if _is_shell(pid):
                waiting += [child for child, parent in members.items() if parent == pid]

    def _readers(self, pids: set[int], members: Members) -> set[int]:
        """Those of `pids` whose input other processes write, or wrote until a few seconds ago."""
        now = time.monotonic()
        for pid in pids:
            inputs = _pipes(pid, 0)
            if inputs and any(inputs & _pipes(other, 1, 2) for other in members if other != pid):
                self._fed[pid] = now
        return {pid for pid in pids if pid in self._fed and now < self._fed[pid] + _READ_S}

    def _sessions(self) -> Mapping[int, Members]:
        sessions: dict[int, Members] = {worker: {} for worker in self._workers}
        for name in _names():
            # "pid (name) state ppid pgrp session ...": the name may contain any character, brackets too.
            fields = _read(f"{name}/stat").rpartition(b")")[2].split()[:4]
            if fields and fields[0] not in b"ZX" and int(fields[3]) in sessions:
                sessions[int(fields[3])][int(name)] = int(fields[1])
        return sessions


def _is_shell(pid: int) -> bool:
    # The name of the file changes when a package manager replaces it, and a process of another user does not show it.
    names = {Path(os.fsdecode(_read(f"{pid}/cmdline").partition(b"\0")[0])).name.lstrip("-")}
    with contextlib.suppress(OSError):
        names.add(Path(os.readlink(_PROC / str(pid) / "exe")).name)
    return not names.isdisjoint(_SHELLS)


def _pipes(pid: int, *descriptors: int) -> set[Pipe]:
    """The pipes among the descriptors."""
    pipes = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            file = (_PROC / str(pid) / "fd" / str(descriptor)).stat()
            if stat.S_ISFIFO(file.st_mode):
                pipes.add((file.st_dev, file.st_ino))
    return pipes


def _handles(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM, or blocks it, as one that waits for it in a thread does."""
    fields = (line.partition(b":") for line in _read(f"{pid}/status").splitlines())
    return any(int(mask, 16) & _SIGTERM_BIT for name, _, mask in fields if name in (b"SigCgt", b"SigBlk"))


def _names() -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 (as in system_files)
    return []


def _read(name: str) -> bytes:
    """Nothing if the process has exited."""
    try:
        return (_PROC / name).read_bytes()
    except OSError:
        return b""


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
