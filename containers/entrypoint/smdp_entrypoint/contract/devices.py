"""Counts what a host computes with, by asking the drivers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from smdp_entrypoint.contract.errors import DeviceError

_TOOL_TIMEOUT_S = 60.0
# P and G are the families with NVIDIA GPUs, whatever their generation.
_GPU_FAMILY = re.compile(r"ml\.[pg]\d")
_EFA_VENDOR = "0x1d0f"  # Amazon's, in the PCI registry


@dataclass(frozen=True)
class Devices:
    cpus: int
    gpus: int
    neurons: int
    efa: bool = False


@dataclass(frozen=True)
class System:
    """Where the kernel shows its devices."""

    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


def count_devices(say: Callable[[str], None], system: System | None = None) -> Devices:
    """Raises DeviceError if there is a GPU driver that does not answer."""
    system = system or System()
    return Devices(
        cpus=os.cpu_count() or 1, gpus=_count_gpus(system, say), neurons=_count_neurons(say), efa=_has_efa(system)
    )


def check_gpus(devices: Devices, instance_type: str) -> None:
    """Refuse to train on the CPUs of a machine that is rented for its GPUs. Raises DeviceError."""
    if not devices.gpus and _GPU_FAMILY.match(instance_type):
        raise DeviceError(
            f"This host is an {instance_type}, which has GPUs, and none is visible in the container: the image may "
            "lack NVIDIA_VISIBLE_DEVICES, or the machine its driver. SMDP_WORKERS_PER_HOST starts workers all the same."
        )


def usable_cores() -> int:
    """Cores that this process may run on, which a container's cpuset can make fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _count_gpus(system: System, say: Callable[[str], None]) -> int:
    """As nvidia-smi lists them; an image without it still shows the driver's device files."""
    nodes = len([path for path in system.dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)])
    driver = (system.proc / "driver/nvidia/version").exists()
    if shutil.which("nvidia-smi") is None:
        return nodes
    listing = _ask(["nvidia-smi", "--list-gpus"])
    if listing.failure is None:
        return sum(line.startswith("GPU ") for line in listing.output.splitlines())
    if nodes or driver:
        raise DeviceError(f"This host's GPU driver does not answer: {listing.failure}. The machine needs replacing.")
    say(f"{listing.failure}; there is no GPU driver here")
    return 0


def _count_neurons(say: Callable[[str], None]) -> int:
    if shutil.which("neuron-ls") is None:
        return 0
    listing = _ask(["neuron-ls", "-j"])
    if listing.failure is not None:
        say(listing.failure)
        return 0
    try:
        return sum(int(device.get("nc_count", 0)) for device in json.loads(listing.output or "[]"))
    except (ValueError, AttributeError, TypeError):
        say(f"neuron-ls -j wrote something else than a list of devices: {listing.output[:200]!r}")
        return 0


def _has_efa(system: System) -> bool:
    """Whether the container can open an Elastic Fabric Adapter: the device file, and Amazon as its maker."""
    if not any(system.dev.glob("infiniband/uverbs*")):
        return False
    vendors = (system.sys / "class/infiniband").glob("*/device/vendor")
    return any(_read(vendor) == _EFA_VENDOR for vendor in vendors)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class _Answer:
    """`failure` is None, or one line on why the tool gave no answer."""

    output: str
    failure: str | None = None


def _ask(command: list[str]) -> _Answer:
    name = " ".join(command)
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Answer("", f"{name} did not answer: {error}")
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        told = " ".join(output.split())[:300]
        return _Answer(output, f"{name} failed with exit code {done.returncode}: {told}")
    return _Answer(output)
