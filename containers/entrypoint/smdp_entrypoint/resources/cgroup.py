"""The limits of the container: its control group (version 1 or 2) and the groups above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterator

from smdp_entrypoint.resources.system_files import UNREADABLE, SystemFiles

_MOUNT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class CpuLimit:
    """`cores` is the quota of processor time, in cores; `usage` the seconds that the group has used."""

    cores: float
    usage: Callable[[], float]


@dataclass(frozen=True)
class MemoryLimit:
    """`limit` is in bytes; `used` the bytes in use without caches that the kernel can drop."""

    limit: int
    used: Callable[[], int]


class Cgroup:
    """The smallest limits that apply to this process; None where there is none or it is not visible."""

    def __init__(self, files: SystemFiles) -> None:
        self._files = files
        self.cpu = min(self._cpu_limits(), key=lambda limit: limit.cores, default=None)
        self.memory = min(self._memory_limits(), key=lambda limit: limit.limit, default=None)

    def _cpu_limits(self) -> Iterator[CpuLimit]:
        for folder in self._folders(""):
            quota, _, period = self._text(f"{folder}/cpu.max").partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                yield CpuLimit(int(quota) / int(period), self._usage_2(folder))
        accounts = self._folders("cpuacct")
        for number, folder in enumerate(self._folders("cpu")):
            quota, period = (self._text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota.isdigit() and period.isdigit() and int(period) and number < len(accounts):
                yield CpuLimit(int(quota) / int(period), self._usage_1(accounts[number]))

    def _memory_limits(self) -> Iterator[MemoryLimit]:
        for controller, limit_name, usage_name, cache_name in (
            ("", "memory.max", "memory.current", "inactive_file"),
            ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for folder in self._folders(controller):
                limit = self._text(f"{folder}/{limit_name}")
                if limit.isdigit():
                    yield MemoryLimit(int(limit), self._used(folder, usage_name, cache_name))

    def _folders(self, controller: str) -> list[str]:
        """The folders of this process's group and of the groups above it; the empty name is version 2."""
        path = self._path(controller)
        if path is None:
            return []
        base = f"{_MOUNT}/{controller}" if controller else self._unified()
        parts = [part for part in path.split("/") if part]
        folders = [f"{base}/{'/'.join(parts[:length])}".rstrip("/") for length in range(len(parts), -1, -1)]
        # In a container without a namespace of its own the path is that of the machine, and the mount is the group.
        return folders if self._files.names(folders[0]) else [base]

    def _path(self, controller: str) -> str | None:
        for line in self._text("/proc/self/cgroup").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                return path
        return None

    def _unified(self) -> str:
        hybrid = f"{_MOUNT}/unified"
        return hybrid if self._files.names(hybrid) else _MOUNT

    def _usage_1(self, folder: str) -> Callable[[], float]:
        return lambda: int(self._files.read(f"{folder}/cpuacct.usage")) / 1e9

    def _usage_2(self, folder: str) -> Callable[[], float]:
        return lambda: self._statistic(f"{folder}/cpu.stat", "usage_usec") / 1e6

    def _used(self, folder: str, usage: str, cache: str) -> Callable[[], int]:
        return lambda: max(
            0, int(self._files.read(f"{folder}/{usage}")) - self._statistic(f"{folder}/memory.stat", cache)
        )

    def _statistic(self, path: str, name: str) -> int:
        lines = (line.partition(" ") for line in self._files.read(path).splitlines())
        return {key: int(value) for key, _, value in lines if key == name}[name]

    def _text(self, path: str) -> str:
        try:
            return self._files.read(path).strip()
        except UNREADABLE:
            return ""
