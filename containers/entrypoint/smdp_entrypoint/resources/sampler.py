"""The fields of the event `resources` (docs/reference/events.md): what the host used since the sample before."""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Any, Callable, Collection, Mapping

from smdp_entrypoint.resources import machine
from smdp_entrypoint.resources.cgroup import Cgroup
from smdp_entrypoint.resources.channels import Channels
from smdp_entrypoint.resources.gpus import Gpus
from smdp_entrypoint.resources.process_trees import read_trees
from smdp_entrypoint.resources.system_files import UNREADABLE, SystemFiles

_INFINIBAND = "/sys/class/infiniband"


class Sampler:
    """Each part whose files are missing or have another form is left out of a sample.

    `workers` gives the process IDs of the workers that are not reaped yet.
    """

    def __init__(
        self,
        files: SystemFiles,
        channels: Channels,
        gpus: Gpus | None,
        workers: Callable[[], Collection[int]],
        cores: Collection[int] | None = None,
    ) -> None:
        self._files = files
        self._channels = channels
        self._gpus = gpus
        self._workers = workers
        self._cores = os.sched_getaffinity(0) if cores is None else cores
        self._cgroup = Cgroup(files)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._use: list[float] = []
        self._at = time.monotonic()
        self._counters = self._read_counters({})

    def watch_gpus(self) -> None:
        """Note the use of the GPUs, which they report for the last second only; `sample` gives the mean."""
        use = self._gpus.use() if self._gpus else None
        if use is not None:
            self._use.append(use)

    def sample(self) -> dict[str, Any]:
        """The window in seconds, the bytes and seconds used in it, and the sizes at its end."""
        now = time.monotonic()
        fields: dict[str, Any] = {"window": round(now - self._at, 3), **self._sizes()}
        self._at = now
        counters = self._read_counters(fields)
        for key, value in counters.items():
            name = key[0]
            # A channel's counter starts with the job. Another counter that was not there before has an unknown past.
            before = self._counters.get(key, 0 if name.startswith("channel_") else value)
            fields[name] = fields.get(name, 0) + max(0, value - before)
        self._counters.update(counters)
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}

    def _sizes(self) -> dict[str, Any]:
        quota = self._cgroup.cpu
        cores: float = len(self._cores)
        if quota is not None and quota.cores < cores:
            cores = round(quota.cores, 2)
        sizes: dict[str, Any] = {"cores": cores}
        with contextlib.suppress(*UNREADABLE):
            sizes["memory_used"], sizes["memory_total"] = self._memory()
        if self._gpus is not None:
            sizes.update(self._gpu_sizes(self._gpus))
        return sizes

    def _memory(self) -> tuple[int, int]:
        used, total = machine.memory_bytes(self._files.read("/proc/meminfo"))
        limit = self._cgroup.memory
        return (limit.used(), limit.limit) if limit is not None and limit.limit < total else (used, total)

    def _gpu_sizes(self, gpus: Gpus) -> dict[str, Any]:
        sizes: dict[str, Any] = {"gpus": gpus.count}
        if not self._use:
            self.watch_gpus()
        if self._use:
            sizes["gpu_use"] = math.fsum(self._use) / len(self._use)
            self._use.clear()
        memory = gpus.memory()
        if memory is not None:
            sizes["gpu_memory_used"], sizes["gpu_memory_total"] = memory
        return sizes

    def _read_counters(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        """Each counter by its field and its device, interface or channel. `fields` gets the modes of the channels, and
        the memory of the workers while one runs."""
        counters: dict[tuple[str, str], float] = {}
        for part in (self._cpu, self._workers_part, self._disks, self._network, self._efa, self._channel_part):
            try:
                counters.update(part(fields))
            except UNREADABLE:
                continue
        return counters

    def _cpu(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        busy, waiting = machine.cpu_seconds(self._files.read("/proc/stat"), self._cores, self._ticks)
        quota = self._cgroup.cpu
        if quota is not None and quota.cores < len(self._cores):
            busy = quota.usage()
        return {("cpu_s", ""): busy, ("io_wait_s", ""): waiting}

    def _workers_part(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        trees = read_trees(self._files, self._workers(), self._ticks)
        if trees.processes:
            fields["workers_memory"] = trees.memory
        return {("workers_cpu_s", ""): trees.cpu_s}

    def _disks(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        return _pairs("disk_read", "disk_written", machine.disk_bytes(self._files.read("/proc/diskstats")))

    def _network(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        return _pairs("net_received", "net_sent", machine.network_bytes(self._files.read("/proc/net/dev")))

    def _efa(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        """The traffic of Elastic Fabric Adapters, which bypasses the kernel's network interfaces."""
        traffic = {}
        for device in self._files.names(_INFINIBAND):
            for port in self._files.names(f"{_INFINIBAND}/{device}/ports"):
                folder = f"{_INFINIBAND}/{device}/ports/{port}/hw_counters"
                received, sent = (int(self._files.read(f"{folder}/{name}_bytes")) for name in ("rx", "tx"))
                traffic[f"{device}:{port}"] = (received, sent)
        return _pairs("efa_received", "efa_sent", traffic)

    def _channel_part(self, fields: dict[str, Any]) -> dict[tuple[str, str], float]:
        counters: dict[tuple[str, str], float] = {}
        for name, (mode, count) in self._channels.read().items():
            fields[f"channel_{name}_mode"] = mode
            if count is not None:
                counters[f"channel_{name}_bytes", name] = count
        return counters


def _pairs(first: str, second: str, traffic: Mapping[str, tuple[int, int]]) -> dict[tuple[str, str], float]:
    counters: dict[tuple[str, str], float] = {}
    for device, (one, other) in traffic.items():
        counters[first, device] = one
        counters[second, device] = other
    return counters
