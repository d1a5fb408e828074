"""How the job's input channels reach this host, and the bytes read from them where the system counts them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.resources.system_files import UNREADABLE, SystemFiles

#: Below the folder `input`. A system that serves the channels itself, such as the local cloud, writes
#: {"NAME": {"mode": "FastFile", "bytes": 123}} into it; the bytes are those since the start of the job.
COUNTERS = ".smdp_channels.json"
MODES = ("File", "FastFile", "Pipe", "FSxLustre", "EFS")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LUSTRE = ("/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite")
_LUSTRE_READS = re.compile(r"^read_bytes\s+\d+ samples \[bytes\] \d+ \d+ (\d+)", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")
# The fifth number after `bytes:` in /proc/self/mountstats: bytes that the server sent.
_NFS_READS = re.compile(r"^\tbytes:\t(?:\d+ ){4}(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class _Mount:
    kind: str
    source: str
    point: str


class Channels:
    """The channels in `inputs`, which is inputdataconfig.json. Their mounts are looked up once."""

    def __init__(self, files: SystemFiles, tree: MlTree, inputs: Mapping[str, Any]) -> None:
        self._files = files
        self._counters = SystemFiles()
        self._counter_file = str(tree.input / COUNTERS)
        self._modes: dict[str, str] = {}
        self._readers: dict[str, Callable[[], int]] = {}
        mounts = list(_mounts(files))
        instances: list[str] = []
        for name in sorted(filter(_NAME.fullmatch, inputs)):
            self._modes[name] = _mode(inputs[name])
            mount = _mount_of(tree.data / name, mounts)
            if mount is not None:
                self._add(name, mount, instances)

    def _add(self, name: str, mount: _Mount, instances: list[str]) -> None:
        if mount.kind == "lustre":
            self._modes[name] = "FSxLustre"
            instance = self._lustre_instance(mount.source)
            # The counters belong to the file system: of two channels on one, only the first gets them.
            if instance is not None and instance not in instances:
                instances.append(instance)
                self._readers[name] = lambda: _number(_LUSTRE_READS, self._files.read(f"{instance}/stats"))
        elif mount.kind in ("nfs", "nfs4"):
            self._modes[name] = "EFS"
            self._readers[name] = lambda: self._nfs_bytes(mount.point)
        elif mount.kind.startswith("fuse"):
            self._modes[name] = "FastFile"

    def read(self) -> dict[str, tuple[str, int | None]]:
        """The mode of each channel and the bytes read since the start of the mount; None where they are unknown."""
        counted = self._counted()
        channels: dict[str, tuple[str, int | None]] = {}
        for name, mode in self._modes.items():
            channels[name] = counted.get(name) or (mode, self._bytes(name))
        return channels

    def _bytes(self, name: str) -> int | None:
        try:
            return self._readers[name]() if name in self._readers else None
        except UNREADABLE:
            return None

    def _counted(self) -> dict[str, tuple[str, int | None]]:
        try:
            found = json.loads(self._counters.read(self._counter_file))
        except (*UNREADABLE, RecursionError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {name: (entry["mode"], entry["bytes"]) for name, entry in entries if _is_counter(entry)}

    def _lustre_instance(self, source: str) -> str | None:
        """The folder of the mount's counters: .../fsname-ffff8f2e7c4d1000. None if several have this name."""
        name = source.rpartition(":/")[2].partition("/")[0]
        for folder in _LUSTRE:
            found = [one for one in self._files.names(folder) if one.rpartition("-")[0] == name]
            if found:
                return f"{folder}/{found[0]}" if len(found) == 1 else None
        return None

    def _nfs_bytes(self, point: str) -> int:
        for mount in re.split(r"^device ", self._files.read("/proc/self/mountstats"), flags=re.MULTILINE):
            if f" mounted on {point} with fstype nfs" in _unescaped(mount.partition("\n")[0]):
                return _number(_NFS_READS, mount)
        raise LookupError(point)


def _mode(channel: Any) -> str:
    mode = channel.get("TrainingInputMode") if isinstance(channel, dict) else None
    return mode if mode in MODES else "File"


def _is_counter(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("mode") not in MODES:
        return False
    count = entry.get("bytes")
    return isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63


def _mounts(files: SystemFiles) -> Iterator[_Mount]:
    try:
        lines = files.read("/proc/self/mountinfo").splitlines()
    except UNREADABLE:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        mount, system = before.split(" "), after.split(" ")
        if len(mount) > 4 and len(system) > 1:
            yield _Mount(system[0], _unescaped(system[1]), _unescaped(mount[4]))


def _mount_of(channel: Path, mounts: list[_Mount]) -> _Mount | None:
    """The last mount at the channel's folder: a later mount at the same place hides the earlier one."""
    places = {str(channel), str(_resolved(channel))}
    found = [mount for mount in mounts if mount.point in places]
    return found[-1] if found else None


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), text)


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    if found is None:
        raise LookupError(pattern.pattern)
    return int(found[1])
