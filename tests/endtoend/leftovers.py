"""Leftovers of a job, from the kernel's tables: a job may leave only its results."""

from __future__ import annotations

import os
import time
from pathlib import Path


def left_behind(*marks: str, deadline: float = 60) -> list[str]:
    """Processes and mounts with one of ``marks`` that still exist after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while True:
        found = [*_processes(marks), *_mounts(marks)]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def listening() -> list[str]:
    """The TCP ports with a listener in this network namespace."""
    rows: list[str] = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == "0A":
                rows.append(f"{table} {local}")
    return rows


def processes(*marks: str) -> list[int]:
    """Ids of the processes with all ``marks`` in their command line or environment."""
    return [pid for pid, text in _described() if all(mark.encode() in text for mark in marks)]


def _processes(marks: tuple[str, ...]) -> list[str]:
    return [
        f"process {pid} {text[:200]!r}" for pid, text in _described() if any(mark.encode() in text for mark in marks)
    ]


def _mounts(marks: tuple[str, ...]) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if any(mark in line for mark in marks)]


def _described() -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            found.append(
                (int(folder.name), (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes())
            )
        except OSError:
            continue  # it exited meanwhile, or belongs to another user
    return found
