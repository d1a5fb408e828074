"""What a job may leave behind: nothing but its results. Counted from outside, by the kernel's own tables."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    """Listening TCP ports, entries of the temporary folder, mounts and processes that name a folder or a job."""

    ports: frozenset[str]
    temporary: frozenset[str]
    processes: frozenset[str]
    mounts: int

    def more_than(self, before: Footprint) -> dict[str, object]:
        found: dict[str, object] = {
            "ports": self.ports - before.ports,
            "temporary": self.temporary - before.temporary,
            "processes": self.processes - before.processes,
            "mounts": max(0, self.mounts - before.mounts),
        }
        return {name: value for name, value in found.items() if value}


def footprint(*marks: str) -> Footprint:
    """Args:
    marks: texts by which a process of the test is known, in its command line or environment.
    """
    return Footprint(
        frozenset(_listening()),
        frozenset(str(one) for one in Path(tempfile.gettempdir()).iterdir()),
        frozenset(_processes(marks)),
        len(Path("/proc/self/mounts").read_text().splitlines()),
    )


def left_behind(before: Footprint, *marks: str, deadline: float = 10) -> dict[str, object]:
    """What is still there once all that ends by itself within ``deadline`` seconds has ended."""
    end = time.monotonic() + deadline
    while True:
        found = footprint(*marks).more_than(before)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def _listening() -> list[str]:
    rows: list[str] = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == "0A":
                rows.append(f"{table} {local}")
    return rows


def _processes(marks: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            told = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
        if any(mark.encode() in told for mark in marks):
            found.append(f"{folder.name} {told.split(b'environ')[0][:200]!r}")
    return found


def processes(*marks: str) -> list[int]:
    """Ids of the processes that carry all ``marks``."""
    return [pid for pid in _pids(marks[0]) if all(pid in _pids(mark) for mark in marks)]


def _pids(mark: str) -> list[int]:
    return [int(one.split()[0]) for one in _processes((mark,))]
