"""Follows one job of a local cloud, and prints the number of lines of each rank and the resources used.

python -m tests.soak.many_lines_follower STATE JOB
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from smdp_launch.jobs.follow import Ended, Follower
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.service.clients import local_cloud


class Watch:
    """Checks each line: the numbers of a rank increase by one, and times increase except for marked lines."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}
        self.lines = self.late = 0
        self.wrong: list[str] = []
        self._counted: dict[str, int] = {}
        self._latest = 0
        self.delays: list[float] = []

    def observe(self, line: LogLine | JobEvent) -> None:
        self.lines += 1
        counted = self._counted[line.host] = max(line.time_ms, self._counted.get(line.host, 0))
        if line.late != (counted < self._latest):
            self.wrong.append(f"{line} after a line of {self._latest}")
        self.late += line.late
        self._latest = max(self._latest, counted)
        if self.lines % 1000 == 0:
            self.delays.append(time.time() - line.time_ms / 1000)
        if isinstance(line, LogLine) and line.rank is not None and line.text.startswith("number "):
            self._number(line.rank, int(line.text.split()[1]))

    def _number(self, rank: int, number: int) -> None:
        if number != self.next.get(rank, 0):
            self.wrong.append(f"rank {rank}: {number}, not {self.next.get(rank, 0)}")
        self.next[rank] = number + 1


def follow(state: Path, job: str) -> dict[str, Any]:
    watch = Watch()
    with local_cloud(state)() as clients:
        for one in Follower(clients, job).events():
            if isinstance(one, LogLine | JobEvent):
                watch.observe(one)
            elif isinstance(one, Ended):
                ended = one
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "status": ended.outcome.status,
        "lines": watch.lines,
        "late": watch.late,
        "wrong": watch.wrong[:5],
        "numbers": list(watch.next.values()),
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mib": used.ru_maxrss / 1024,
        "delays_s": sorted(watch.delays),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(follow(Path(sys.argv[1]), sys.argv[2])) + "\n")
