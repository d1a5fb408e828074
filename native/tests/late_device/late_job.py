"""Jobs whose ranks have the late device."""

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import device_cases
import late_device_build
import pytest
import ranks

# The late device needs the interface of this version of torch for external devices.
LATE_FROM = (2, 13)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
BUILDS = Path(__file__).parents[2] / "build" / "late_device"


def path() -> str:
    """PYTHONPATH with the late device; skips the test where the installed torch has no interface for it."""
    version = importlib.metadata.version("torch")
    if tuple(int(part) for part in version.split(".")[:2]) < LATE_FROM:
        pytest.skip(f"the late device does not support torch {version}")
    folder = BUILDS / version
    late_device_build.built(folder)
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def script(cases: Dict[str, str], end: str = "dist.destroy_process_group()\n") -> str:
    return device_cases.LATE + device_cases.INIT + ranks.in_turn(cases) + end


def run(
    hosts: Sequence[int],
    cases: Dict[str, str],
    *,
    env: Optional[Dict[str, str]] = None,
    end: str = "dist.destroy_process_group()\n",
) -> List[ranks.Outcome]:
    """Run the cases in one job; each rank prints the cases that passed."""
    return ranks.start(hosts, script(cases, end), env={**(env or {}), "PYTHONPATH": path()}).finish(timeout=280)
