"""Checks this host before the script starts: a host that is broken ends the job early, named in the failure.

Each check reads what the system shows it. A value that cannot be read is no problem of the host.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Callable, Iterator

from smdp_entrypoint.contract.devices import Devices, System, ask
from smdp_entrypoint.contract.errors import HealthError

# Bytes that the failure file, checkpoints and temporary files need at least.
LEAST_FREE = 100_000_000
# GPUs of the instance types for data parallel training. A test compares them with the launcher's catalogue.
GPUS = {
    "ml.p3.16xlarge": 8,
    "ml.p3dn.24xlarge": 8,
    "ml.p4d.24xlarge": 8,
    "ml.p4de.24xlarge": 8,
    "ml.p5.48xlarge": 8,
}
# Errors of the NVIDIA driver after which a GPU does not work until its host restarts.
FATAL_XIDS = {
    48: "a double bit ECC error",
    64: "a memory row that cannot be remapped",
    79: "a GPU that has fallen off the bus",
    95: "an uncontained ECC error",
}
_XID = re.compile(r"NVRM: Xid \((?P<device>[^)]*)\): (?P<number>\d+)")
_ECC_QUERY = ["nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader,nounits"]
_LOG_LIMIT = 1 << 20  # bytes of the kernel's log


def check_health(
    host: str,
    instance_type: str,
    devices: Devices,
    folders: list[Path],
    say: Callable[[str], None],
    system: System | None = None,
) -> None:
    """Raises HealthError, with all problems, if the host cannot train."""
    system = system or System()
    problems = [
        *_missing_gpus(instance_type, devices),
        *_ecc_errors(devices, say),
        *_xids(system),
        *_full_disks(folders),
    ]
    if problems:
        raise HealthError(f"unhealthy host {host}: {'; '.join(problems)}. Start the job again to get another host.")


def _missing_gpus(instance_type: str, devices: Devices) -> Iterator[str]:
    expected = GPUS.get(instance_type)
    if expected is not None and 0 < devices.gpus < expected:
        yield f"it has {devices.gpus} of the {expected} GPUs of an {instance_type}"


def _ecc_errors(devices: Devices, say: Callable[[str], None]) -> Iterator[str]:
    if not devices.gpus or shutil.which("nvidia-smi") is None:
        return
    listing = ask(_ECC_QUERY)
    if listing.failure is not None:
        say(f"the GPUs' ECC errors are not checked: {listing.failure}")
        return
    for line in listing.output.splitlines():
        index, _, count = (part.strip() for part in line.partition(","))
        if count.isdecimal() and int(count):  # [N/A] without ECC
            yield f"GPU {index} has had {count} uncorrectable ECC errors since its start"


def _xids(system: System) -> Iterator[str]:
    """Fatal errors of the NVIDIA driver in the kernel's log, which a container may not be allowed to read."""
    seen = set()
    for found in _XID.finditer(_kernel_log(system.dev / "kmsg")):
        number, device = int(found["number"]), found["device"]
        if number in FATAL_XIDS and (number, device) not in seen:
            seen.add((number, device))
            yield f"the kernel's log has Xid {number} of {device}: {FATAL_XIDS[number]}"


def _kernel_log(path: Path) -> str:
    text = b""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while len(text) < _LOG_LIMIT:  # each read returns one message
                part = os.read(fd, 8192)
                if not part:
                    break
                text += part
        except OSError:  # no more messages, or one that was overwritten
            pass
        finally:
            os.close(fd)
    return text.decode("utf-8", "replace")


def _full_disks(folders: list[Path]) -> Iterator[str]:
    seen = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            status = os.statvfs(folder)
            free, device = status.f_bavail * status.f_frsize, folder.stat().st_dev
            if free < LEAST_FREE and device not in seen:
                seen.add(device)
                yield f"the disk of {folder} has {free / 1e6:.0f} MB free, and a job needs {LEAST_FREE / 1e6:.0f} MB"
