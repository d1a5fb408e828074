"""Processor time and memory of the workers and of the processes that they started."""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from dataclasses import dataclass
from typing import Collection

from smdp_entrypoint.resources.system_files import UNREADABLE, SystemFiles


@dataclass(frozen=True)
class _Process:
    """`seconds`: its own processor time, and that of its child processes whose exit it has read."""

    parent: int
    session: int
    seconds: float


@dataclass(frozen=True)
class Trees:
    """`cpu_s`: seconds since the start of the job, exited processes included. `memory`: bytes.

    The memory is an estimate that never reads a process's page tables: each process's own pages, and once the largest
    number of pages that one of them shares with files and with other processes, mostly libraries. A page that a forked
    process still shares with its parent counts for both.
    """

    cpu_s: float
    memory: int
    processes: int


def read_trees(files: SystemFiles, workers: Collection[int], ticks: int) -> Trees:
    """`workers` are process IDs that the entrypoint has not reaped yet; `ticks` the units of /proc/PID/stat a second.

    A process whose parent exited is recognized by its session, since each worker starts one.
    """
    members = _members(_processes(files, ticks), set(workers)) if workers else {}
    private, shared = 0, [0]
    for pid in members:
        own, common = _memory(files, pid)
        private += own
        shared.append(common)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = reaped.ru_utime + reaped.ru_stime + sum(process.seconds for process in members.values())
    return Trees(seconds, private + max(shared), len(members))


def cpu_seconds(files: SystemFiles, workers: Collection[int], ticks: int) -> dict[int, float]:
    """Processor time of each worker together with the processes that it started."""
    processes = _processes(files, ticks)
    return {pid: sum(one.seconds for one in _members(processes, {pid}).values()) for pid in workers}


def _processes(files: SystemFiles, ticks: int) -> dict[int, _Process]:
    processes = {}
    # A parent has the lower number as a rule. If a child exits between the two reads, its time is missing until the
    # next sample, and is not counted twice.
    for pid in sorted(int(name) for name in files.names("/proc") if name.isdecimal()):
        try:
            # The name of the program stands in parentheses and may contain any character.
            values = files.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            seconds = sum(map(int, values[11:15])) / ticks
            processes[pid] = _Process(int(values[1]), int(values[3]), seconds)
        except UNREADABLE:  # it has exited
            continue
    return processes


def _members(processes: dict[int, _Process], workers: set[int]) -> dict[int, _Process]:
    children = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    waiting = [pid for pid, process in processes.items() if pid in workers or process.session in workers]
    members: dict[int, _Process] = {}
    while waiting:
        pid = waiting.pop()
        if pid not in members:
            members[pid] = processes[pid]
            waiting += children[pid]
    return members


def _memory(files: SystemFiles, pid: int) -> tuple[int, int]:
    """Bytes of its own and bytes that it shares, both resident."""
    try:
        resident, shared = map(int, files.read(f"/proc/{pid}/statm").split()[1:3])
    except UNREADABLE:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return max(0, resident - shared) * page, shared * page
