"""Limits of this process that local runs meet: open files, memory, processors."""

from __future__ import annotations

import importlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.doctor.fixes import Fault

resource: Any = importlib.import_module("resource") if os.name == "posix" else None

#: Measured with 2 to 16 ranks on 1 to 8 hosts: rank 0 opens at most 16 + 3 x ranks files. The same again is left for
#: the files of a small script.
_FILES, _FILES_PER_RANK = 32, 3
#: What the commands set.
_ENOUGH_FILES = 4096
_SYS_RESOURCE = 24  # number of the capability that raises hard limits
_QUOTA_FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")  # microseconds
_CGROUPS = Path("/sys/fs/cgroup")


def open_files_needed(ranks: int) -> int:
    return _FILES + _FILES_PER_RANK * ranks


def open_files_limit() -> int | None:
    """The number of files that each process of a local run may open; None for no limit, or an unknown one.

    The local cloud raises its soft limit to the hard one, so the hard limit counts.
    """
    if resource is None:
        return None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else int(hard)


def open_files_fault(ranks: int) -> Fault | None:
    """The fault that the limit of open files is too low for a run of so many ranks."""
    limit = open_files_limit()
    if limit is None or limit >= open_files_needed(ranks):
        return None
    reason = (
        f"this shell allows {limit} open files for each process, and a local run of {ranks} ranks needs "
        f"{open_files_needed(ranks)}"
    )
    return Fault("open files", reason, raise_open_files() or _run_fewer(limit))


def raise_open_files() -> str | None:
    """The command that raises the hard limit of the current shell; None if that is not allowed."""
    if _has_capability(_SYS_RESOURCE):
        return f"ulimit -n {_ENOUGH_FILES}"
    if not is_root() and shutil.which("sudo") is not None:
        return f"sudo prlimit --pid $$ --nofile={_ENOUGH_FILES}:{_ENOUGH_FILES}"
    return None


def _run_fewer(limit: int) -> str:
    """The command for a shell or a container whose limit cannot be raised."""
    workers = (limit - _FILES) // _FILES_PER_RANK
    if workers < 1:
        return f"docker run --ulimit nofile={_ENOUGH_FILES}:{_ENOUGH_FILES} ..."
    return f"smdp-launch launch --local --hosts 1 --workers-per-host {workers}"


def _has_capability(number: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return is_root()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return is_root() if found is None else bool(int(found[1], 16) >> number & 1)


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def as_root(command: str) -> str:
    """The command as this user has to type it."""
    return command if is_root() else f"sudo {command}"


def memory_limit() -> int | None:
    """The bytes of memory that this process may use: of the machine, or of its control groups. None if unknown."""
    texts = _of_groups("memory", "memory.max", "memory.limit_in_bytes")
    limits = [int(text) for text in texts if text.isdecimal()]  # otherwise "max"
    machine = _machine_memory()
    return min([*limits, *([machine] if machine is not None else [])], default=None)


def processor_quota() -> float | None:
    """The number of processors whose time this process's control groups may use; None without a limit."""
    pairs = [text.split() for text in _of_groups("cpu", "cpu.max")]
    pairs += [list(one) for one in zip(*(_of_groups("cpu", name) for name in _QUOTA_FILES), strict=False)]
    quotas = [int(quota) / int(period) for quota, period in pairs if quota.isdecimal()]  # otherwise "max" or -1
    return min(quotas, default=None)


def _machine_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_groups(controller: str, *names: str) -> list[str]:
    """The contents of the files with these names in this process's control groups and those above them."""
    texts = []
    for folder in _groups(controller):
        for name in names:
            with suppress(OSError):
                texts.append((folder / name).read_text(encoding="utf-8").strip())
    return texts


def _groups(controller: str) -> list[Path]:
    """The folders of the control groups, of version 2 or of the controller in version 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = _CGROUPS / controllers
            inner = root / path.strip("/")
            folders += [one for one in (inner, *inner.parents) if root in (one, *one.parents)]
    return folders


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
