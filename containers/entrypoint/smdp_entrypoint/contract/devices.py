"""Counts the CPUs, GPUs, Neuron cores and EFA devices of a host, as the drivers report them."""

from __future__ import annotations

import contextlib
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
_KILLED_S = 1.0  # for a tool that was killed
# P and G are the instance families with NVIDIA GPUs, in every generation.
_GPU_FAMILY = re.compile(r"ml\.[pg]\d")
_EFA_VENDOR = "0x1d0f"  # Amazon's PCI vendor ID


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
    """Raises DeviceError if a GPU driver is present and does not answer."""
    system = system or System()
    return Devices(
        cpus=os.cpu_count() or 1, gpus=_count_gpus(system, say), neurons=_count_neurons(say), efa=_has_efa(system)
    )


def check_gpus(devices: Devices, instance_type: str) -> None:
    """Raises DeviceError if the instance type has GPUs and none is visible."""
    if not devices.gpus and _GPU_FAMILY.match(instance_type):
        raise DeviceError(
            f"This host is an {instance_type}, which has GPUs, but the container sees none. Set NVIDIA_VISIBLE_DEVICES "
            "in the image and check that the host has a GPU driver. To train without GPUs, set SMDP_WORKERS_PER_HOST."
        )


def usable_cores() -> int:
    """The number of cores that this process may run on; a container's cpuset can limit it."""
    return len(os.sched_getaffinity(0))


def _count_gpus(system: System, say: Callable[[str], None]) -> int:
    """The GPUs that nvidia-smi lists; in an image without nvidia-smi, the driver's device files."""
    nodes = len([path for path in system.dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)])
    driver = (system.proc / "driver/nvidia/version").exists()
    if shutil.which("nvidia-smi") is None:
        return nodes
    listing = ask(["nvidia-smi", "--list-gpus"])
    if listing.failure is None:
        return sum(line.startswith("GPU ") for line in listing.output.splitlines())
    if nodes or driver:
        raise DeviceError(f"This host's GPU driver does not answer: {listing.failure}. Start the job on another host.")
    say(f"{listing.failure}; this host has no GPU driver")
    return 0


def _count_neurons(say: Callable[[str], None]) -> int:
    if shutil.which("neuron-ls") is None:
        return 0
    listing = ask(["neuron-ls", "-j"])
    if listing.failure is not None:
        say(listing.failure)
        return 0
    try:
        return sum(int(device.get("nc_count", 0)) for device in json.loads(listing.output or "[]"))
    except (ValueError, AttributeError, TypeError):
        say(f"neuron-ls -j did not write a list of devices, but {listing.output[:200]!r}")
        return 0


def _has_efa(system: System) -> bool:
    """Whether the container can open an Elastic Fabric Adapter: a device file with Amazon's vendor ID."""
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
class Answer:
    """What a tool wrote. `failure` is None, or one line that says why the tool gave no answer."""

    output: str
    failure: str | None = None


def ask(command: list[str]) -> Answer:
    name = " ".join(command)
    try:
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            written = tool.communicate(timeout=_TOOL_TIMEOUT_S)[0]
        finally:  # also when a stop signal raises
            _end(tool)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer("", f"{name} did not answer: {error}")
    output = written.decode("utf-8", "replace")
    if tool.returncode != 0:
        return Answer(output, f"{name} failed with exit code {tool.returncode}: {' '.join(output.split())[:300]}")
    return Answer(output)


def _end(tool: subprocess.Popen[bytes]) -> None:
    """Kill the tool if it still runs. In a system call of a driver that hangs, no signal ends it: it is left behind."""
    if tool.returncode is None:
        tool.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            tool.wait(timeout=_KILLED_S)
    if tool.stdout is not None:
        tool.stdout.close()
