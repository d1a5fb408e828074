"""Checks of this machine: limits, folders, isolation, shared memory, network, clock."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.doctor import limits
from smdp_launch.doctor.results import CheckResult
from smdp_launch.jobs.records.history import STATE_FOLDER
from smdp_launch.jobs.records.local_clouds import named_folder
from smdp_launch.units import count, size

_RANKS = 4  # of the runs for which the limits are judged
_LEAST_DISK, _LITTLE_DISK = 200_000_000, 2_000_000_000  # bytes
_LITTLE_MEMORY = 2_000_000_000  # bytes; a worker with torch takes about 300 MB
#: Bytes. Docker gives 64 MiB, with which the data loaders of PyTorch fail with large batches.
_LITTLE_SHM = 256 << 20
_SHM = Path("/dev/shm")  # noqa: S108 (only its size is read)
_BUILT = datetime(2026, 1, 1, tzinfo=timezone.utc)  # no release is older


def system() -> Iterator[CheckResult]:
    release = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.system() == "Linux":
        yield CheckResult("system", "ok", f"{release}, {' '.join(platform.libc_ver())}".rstrip(", "))
    else:
        yield CheckResult("system", "ok", release)


def open_files() -> Iterator[CheckResult]:
    limit = limits.open_files_limit()
    found = "no limit" if limit is None else f"at most {limit} for each process"
    fault = limits.open_files_fault(_RANKS)
    if fault is not None:
        yield CheckResult("open files", "error", fault.reason, "raise the limit, or run fewer workers", fault.command)
    elif limit is not None and limit < limits.open_files_needed(64):
        text = f"{found}: a local run of 64 ranks needs {limits.open_files_needed(64)}"
        yield CheckResult("open files", "warning", text, "raise the limit of this shell", limits.raise_open_files())
    else:
        yield CheckResult("open files", "ok", found)


def folders() -> Iterator[CheckResult]:
    """The folders that commands write to: the current one, the local cloud's, the user's own and the temporary one."""
    yield from _state_folder()
    temporary = _temporary()
    if temporary is None:
        text = "no folder for temporary files can be written"
        yield CheckResult("temporary files", "error", text, "name one that can", 'export TMPDIR="$PWD"')
    else:
        yield CheckResult("temporary files", "ok", f"{temporary} is writable")
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is no home
    if is_writable(home):
        yield CheckResult("home", "ok", f"{home} is writable")
    else:
        text = f"{home} is not writable: results of checks are not cached, and scripts cannot save files there"
        yield CheckResult("home", "warning", text, "use another home folder", 'export HOME="$(mktemp -d)"')


def _state_folder() -> Iterator[CheckResult]:
    folder = named_folder() or Path.cwd() / STATE_FOLDER
    place = _existing(folder)
    if not is_writable(place):
        text = f"{place} is not writable, and local runs keep their state in {folder}"
        yield CheckResult(
            "state folder", "error", text, "change to a folder that you can write to", 'cd "$(mktemp -d)"'
        )
        return
    free = shutil.disk_usage(place).free
    if free < _LITTLE_DISK:
        verdict, text = ("error" if free < _LEAST_DISK else "warning"), f"only {size(free)} are free in {place}"
        fix = "free space there, or put the local cloud's state on another disk"
        yield CheckResult("state folder", verdict, text, fix, "export SMDP_LOCAL_STATE=/path/on/another/disk")  # type: ignore[arg-type]
    else:
        yield CheckResult("state folder", "ok", f"{folder} can be written, {size(free)} free")


def _existing(folder: Path) -> Path:
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _temporary() -> str | None:
    try:
        return tempfile.gettempdir()
    except OSError:
        return None


def resources() -> Iterator[CheckResult]:
    memory = limits.memory_limit()
    quota = limits.processor_quota()
    used = f" (of which this control group may use {quota:g})" if quota is not None and quota < limits.cores() else ""
    found = f"{count(limits.cores(), 'core')}{used}, {'unknown' if memory is None else size(memory)} memory"
    if memory is not None and memory < _LITTLE_MEMORY:
        fix = "use fewer workers, or raise the memory limit of the container"
        yield CheckResult("memory", "warning", found, fix, "smdp-launch launch --local --hosts 1 --workers-per-host 1")
    else:
        yield CheckResult("memory", "ok", found)


def isolation() -> Iterator[CheckResult]:
    """Namespaces, shared memory and the network of simulated hosts."""
    if platform.system() != "Linux":
        text = "simulated hosts share this machine's files and processes: separate hosts need Linux"
        yield CheckResult("namespaces", "warning", text, "run the job in a Linux container or virtual machine")
        return
    from smdp_launch.localcloud.client import connect, machine  # need Linux

    found = connect.isolation()
    reason, remedy = found.reason, found.remedy
    if remedy is None:
        yield CheckResult("namespaces", "ok", "simulated hosts have their own /opt/ml, /tmp, processes and host name")
    else:
        text = f"simulated hosts share this machine's files and processes, and /opt/ml is a folder: {reason}"
        yield CheckResult("namespaces", "warning", text, remedy.text, remedy.command)
    yield from _shared_memory(has_own=reason is None)
    yield _input_channels(has_namespaces=reason is None)
    refusal = machine.network_refusal(is_shaped=False)
    if refusal is None:
        yield CheckResult("host network", "ok", "simulated hosts can have a network of their own (--network)")
    elif reason is None:
        text = f"{refusal}: simulated hosts share this machine's loopback interface"
        command = limits.as_root("apt-get install iproute2 util-linux")
        yield CheckResult("host network", "warning", text, "install the programs for --network", command)
    else:
        yield CheckResult("host network", "not checked", "because there are no namespaces")


def _input_channels(*, has_namespaces: bool) -> CheckResult:
    from smdp_launch.localcloud.client import connect

    if not has_namespaces:
        return CheckResult("input channels", "not checked", "because there are no namespaces")
    problem = connect.inputs_problem()
    if problem is None:
        return CheckResult("input channels", "ok", "scripts read FastFile channels while they train, as on SageMaker")
    text = f"FastFile channels are copied before the start, and `rehearse slow-input` cannot run: {problem.reason}"
    return CheckResult("input channels", "warning", text, problem.remedy.text, problem.remedy.command)


def _shared_memory(*, has_own: bool) -> Iterator[CheckResult]:
    """The engine shares memory through anonymous files (memfd), which /dev/shm does not limit. The data loaders of
    PyTorch use /dev/shm. Hosts with namespaces have a /dev/shm of their own."""
    try:
        total = shutil.disk_usage(_SHM).total
    except OSError:
        yield CheckResult("shared memory", "ok", f"no {_SHM}; the engine does not need it")
        return
    found = f"{_SHM} has {size(total)}"
    if has_own:
        yield CheckResult("shared memory", "ok", f"{found}; each simulated host has its own")
    elif total < _LITTLE_SHM:
        text = f"{found}: data loaders of PyTorch with worker processes need more"
        yield CheckResult("shared memory", "warning", text, "enlarge it (in docker: --shm-size 1g)", enlarge_shm())
    else:
        yield CheckResult("shared memory", "ok", found)


def enlarge_shm() -> str:
    return limits.as_root(f"mount -o remount,size=1G {_SHM}")


def ports() -> Iterator[CheckResult]:
    """The local cloud listens on 127.0.0.1; each simulated host has its own address in 127.0.0.0/8."""
    for address in ("127.0.0.1", "127.1.0.1"):
        try:
            with socket.socket() as one:
                one.bind((address, 0))
                one.listen()
        except OSError as error:
            text = f"no port can be opened at {address}: {error.strerror}"
            yield CheckResult(
                "ports", "error", text, "start the loopback interface", limits.as_root("ip link set lo up")
            )
            return
    yield CheckResult("ports", "ok", "free ports at 127.0.0.1 and at the addresses of simulated hosts")


def clock() -> Iterator[CheckResult]:
    now = datetime.fromtimestamp(time.time(), timezone.utc)
    if now < _BUILT:
        text = f"{now:%Y-%m-%d %H:%M} UTC is in the past: AWS refuses requests with a wrong time"
        yield CheckResult("clock", "error", text, "set the clock", limits.as_root("timedatectl set-ntp true"))
    else:
        yield CheckResult("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC; --aws compares it with the clock of AWS")
