"""The metrics that AWS measures itself: use of the hosts, and reads from FSx file systems.

Hosts report their use in `resources` events (docs/reference/events.md). What they read from a file system is counted
by the server of their channels (`inputs`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from smdp_launch.event_lines import event_of, split_line
from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.inputs.readings import Reading, readings
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.runtime.meter import Point

FSX = "AWS/FSx"
_EVENT = "resources"

Fields = Mapping[str, float]


class Measure(NamedTuple):
    unit: str
    value: Callable[[Fields], float]


#: From the numbers of one event; a KeyError means that the host did not measure it. Percents are of one processor or
#: GPU, as on AWS: a host with four busy ones has 400.
_HOST: dict[str, Measure] = {
    "CPUUtilization": Measure("Percent", lambda one: 100 * one["workers_cpu_s"] / one["window"]),
    "MemoryUtilization": Measure("Percent", lambda one: 100 * one["workers_memory"] / one["memory_total"]),
    "DiskUtilization": Measure("Percent", lambda one: 100 * one["disk_space_used"] / one["disk_space_total"]),
    "GPUUtilization": Measure("Percent", lambda one: 100 * one["gpu_use"] * one["gpus"]),
    "GPUMemoryUtilization": Measure(
        "Percent", lambda one: 100 * one["gpu_memory_used"] / one["gpu_memory_total"] * one["gpus"]
    ),
}
_READ: dict[str, tuple[str, Callable[[Reading], float]]] = {
    "DataReadBytes": ("Bytes", lambda one: one.bytes),
    "DataReadOperations": ("Count", lambda one: one.operations),
}


def unit(name: str) -> str:
    if name in _HOST:
        return _HOST[name].unit
    return _READ[name][0] if name in _READ else "None"


def host_names(folder: JobFolder) -> list[str]:
    """The hosts that have a log."""
    return sorted({path.name.rpartition("-")[0] for path in folder.log_files()})


def host_points(folder: JobFolder, host: str) -> Iterator[Point]:
    """Every measured value of a host, in the order of time."""
    for time, fields in _events(folder, host):
        for name, measure in _HOST.items():
            with suppress(KeyError, ZeroDivisionError, OverflowError):
                yield Point(name, time, measure.value(fields))


def file_systems(folder: JobFolder) -> dict[str, str]:
    """The FSx file system of each channel that has one."""
    found = {}
    for channel in (read_json(folder.request) or {}).get("InputDataConfig", []):
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is not None and source["FileSystemType"] == "FSxLustre":
            found[channel["ChannelName"]] = source["FileSystemId"]
    return found


def read_points(folders: Iterable[JobFolder], file_system: str) -> Iterator[Point]:
    """What all jobs have read from the file system."""
    for folder in folders:
        names = {name for name, one in file_systems(folder).items() if one == file_system}
        for reading in readings(folder.readings) if names else ():
            if reading.channel in names:
                yield from (Point(name, reading.time, value(reading)) for name, (_, value) in _READ.items())


def _events(folder: JobFolder, host: str) -> Iterator[tuple[float, Fields]]:
    """The time, in seconds since 1970, and the numbers of each `resources` event of the host."""
    for path in sorted(folder.log_files()):
        if path.name.rpartition("-")[0] == host:
            with suppress(FileNotFoundError), path.open("rb") as lines:
                for line in lines:
                    found = _event(host, line) if b"resources" in line else None
                    if found is not None:
                        yield found


def _event(host: str, line: bytes) -> tuple[float, Fields] | None:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:  # not yet whole
        return None
    parsed = split_line(host, record["message"])
    event = event_of(parsed) if parsed.by_host else None  # a worker cannot report for its host
    if event is None or event.get("event") != _EVENT:
        return None
    return record["timestamp"] / 1000, {name: float(one) for name, one in event.items() if _is_amount(one)}


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
