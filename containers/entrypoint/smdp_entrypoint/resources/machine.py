"""Counters of the whole machine: processors, memory, disks and network. The functions read no files."""

from __future__ import annotations

import re
from typing import Collection, Iterator, Mapping

_SECTOR = 512  # bytes, whatever the device's own size is
# Devices whose traffic is memory, or is counted again at the devices below them.
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|drbd|fd|sr)\d|nvme\d+c\d+n\d+")
# Interfaces whose traffic stays on the machine, or is counted again at the interface that carries it.
_NO_NETWORK = re.compile(r"(docker|br-|virbr|veth|ifb|dummy|tun|tap|wg|cni|flannel|cali)")
_LOOPBACK = "lo"


def cpu_seconds(stat: str, cores: Collection[int], ticks: int) -> tuple[float, float]:
    """Busy seconds and seconds of waiting for I/O, of these cores since the start of the machine.

    `stat` is /proc/stat and `ticks` its units a second. Time that another virtual machine used is not busy time. Raises
    ValueError and LookupError if the file has another form.
    """
    lines = {line[0]: line[1:] for line in map(str.split, stat.splitlines()) if line and line[0].startswith("cpu")}
    of_cores = [lines[name] for name in (f"cpu{core}" for core in cores) if name in lines]
    busy = waiting = 0
    for line in of_cores or [lines["cpu"]]:
        user, nice, system, _, io_wait, interrupts, soft_interrupts = map(int, line[:7])
        busy += user + nice + system + interrupts + soft_interrupts
        waiting += io_wait
    return busy / ticks, waiting / ticks


def memory_bytes(meminfo: str) -> tuple[int, int]:
    """Bytes in use, without caches that the kernel can drop, and all bytes. Raises ValueError and LookupError."""
    sizes = {name: size for name, _, size in (line.partition(":") for line in meminfo.splitlines())}
    total, available = (int(sizes[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return max(0, total - available), total


def disk_bytes(diskstats: str) -> Mapping[str, tuple[int, int]]:
    """Bytes read and written of each whole device since the start of the machine. Raises ValueError and LookupError."""
    devices = {line[2]: line for line in map(str.split, diskstats.splitlines()) if len(line) > 9}
    return {
        name: (int(line[5]) * _SECTOR, int(line[9]) * _SECTOR)
        for name, line in devices.items()
        if not _NO_DISK.match(name) and not any(whole in devices for whole in _wholes(name))
    }


def _wholes(name: str) -> Iterator[str]:
    """The devices of which a device with this name could be a partition: sda of sda1, nvme0n1 of nvme0n1p1."""
    whole = name.rstrip("0123456789")
    if whole != name:
        yield whole
        if whole[:-1].rstrip("0123456789") != whole[:-1] and whole.endswith("p"):
            yield whole[:-1]


def network_bytes(net_dev: str) -> Mapping[str, tuple[int, int]]:
    """Bytes received and sent of each interface; loopback only where there is no other.

    Raises ValueError and LookupError if the file has another form.
    """
    interfaces = {}
    for line in net_dev.splitlines()[2:]:
        name, _, numbers = line.rpartition(":")
        values = numbers.split()
        interfaces[name.strip()] = (int(values[0]), int(values[8]))
    others = {name: traffic for name, traffic in interfaces.items() if name != _LOOPBACK}
    outside = {name: traffic for name, traffic in others.items() if not _NO_NETWORK.match(name)}
    return outside or others or interfaces
