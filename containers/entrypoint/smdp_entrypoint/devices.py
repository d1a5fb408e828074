"""Counts what a host computes with, by asking the drivers' own tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Callable

_TOOL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Devices:
    cpus: int
    gpus: int
    neurons: int


def count_devices(say: Callable[[str], None]) -> Devices:
    return Devices(cpus=os.cpu_count() or 1, gpus=_count_gpus(say), neurons=_count_neurons(say))


def usable_cores() -> int:
    """Cores that this process may run on, which a container's cpuset can make fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _count_gpus(say: Callable[[str], None]) -> int:
    listing = _ask(["nvidia-smi", "--list-gpus"], say)
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def _count_neurons(say: Callable[[str], None]) -> int:
    listing = _ask(["neuron-ls", "-j"], say)
    try:
        return sum(int(device.get("nc_count", 0)) for device in json.loads(listing or "[]"))
    except (ValueError, AttributeError, TypeError):
        say(f"neuron-ls -j wrote something else than a list of devices: {listing[:200]!r}")
        return 0


def _ask(command: list[str], say: Callable[[str], None]) -> str:
    """What the tool prints; nothing where there is no such tool, or where it fails, which is told."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{' '.join(command)} did not answer: {error}")
        return ""
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        say(f"{' '.join(command)} failed with exit code {done.returncode}: {output.strip()[:500]}")
        return ""
    return output
