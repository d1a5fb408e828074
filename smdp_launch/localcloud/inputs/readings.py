"""What the hosts of a job read from their channels over time, in the job's folder.

The supervisor adds a line whenever a total has grown; CloudWatch reads them (`services.logs.metrics`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.inputs.counters import STATUS


@dataclass(frozen=True)
class Reading:
    """What one host has read from one channel since the last reading.

    Args:
        time: seconds since 1970.
        operations: answers with these bytes, of at most 1 MiB each.
    """

    time: float
    host: str
    channel: str
    bytes: int
    operations: int


@dataclass(frozen=True)
class Total:
    """What one host has read from one channel. `seconds`: while at least one reader waited for bytes."""

    mode: str
    bytes: int
    seconds: float


class Readings:
    """Args:
    folders: of the hosts, by name.
    """

    def __init__(self, file: Path, folders: Mapping[str, Path]) -> None:
        self._file = file
        self._folders = folders
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        self._totals: dict[tuple[str, str], Total] = {}
        self._earlier: list[dict[tuple[str, str], Total]] = []

    def restart(self) -> None:
        """The hosts are started again, and count from 0."""
        self._earlier.append(self._totals)
        self._last, self._totals = {}, {}

    def update(self) -> None:
        """Write what was read since the last call. What the disk has no space for is lost."""
        found = [one for host in self._folders for one in self._new(host)]
        if found:
            with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(one)) + "\n" for one in found)

    def _new(self, host: str) -> Iterator[Reading]:
        for name, one in (read_json(self._folders[host] / STATUS) or {}).items():
            if "reads" not in one:  # copied before the start
                continue
            before = self._last.get((host, name), (0, 0))
            now = (int(one["bytes"]), int(one["reads"]))
            self._last[host, name] = now
            self._totals[host, name] = Total(one["mode"], now[0], float(one["seconds"]))
            if now > before:
                yield Reading(time.time(), host, name, now[0] - before[0], now[1] - before[1])

    def summary(self) -> list[dict[str, Any]]:
        """For each host and channel: mode, bytes and seconds, over all starts of the hosts."""
        sums: dict[tuple[str, str], Total] = {}
        for totals in (*self._earlier, self._totals):
            for key, one in totals.items():
                before = sums.get(key, Total(one.mode, 0, 0.0))
                sums[key] = Total(one.mode, before.bytes + one.bytes, before.seconds + one.seconds)
        return [{"host": host, "channel": name, **asdict(one)} for (host, name), one in sorted(sums.items())]


def readings(file: Path) -> Iterator[Reading]:
    """Every reading so far."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError, TypeError):  # a line that a full disk cut
            yield Reading(**json.loads(line))
