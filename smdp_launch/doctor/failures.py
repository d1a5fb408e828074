"""Explains failures of local runs that this machine or this environment caused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from smdp_launch import disk
from smdp_launch.doctor import packages
from smdp_launch.doctor.installer import install
from smdp_launch.doctor.limits import raise_open_files
from smdp_launch.doctor.machine import enlarge_shm
from smdp_launch.planning.plan import Plan

_DOCTOR = "to find the cause in this environment, run: smdp-launch doctor"
#: Modules whose package has another name.
_PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "attr": "attrs",
    "dateutil": "python-dateutil",
    "pytorch_lightning": "pytorch-lightning",
}
_MISSING_MODULE = re.compile(r"No module named '?([A-Za-z_][\w.]*)'?")
_CAUSES: tuple[tuple[re.Pattern[str], Callable[[], str]], ...] = (
    (
        re.compile(r"insufficient shared memory|unable to allocate shared memory|Bus error|SIGBUS"),
        lambda: f"the script needs more shared memory in /dev/shm; run: {enlarge_shm()}",
    ),
    (
        re.compile(r"Too many open files"),
        lambda: f"the limit of open files is too low; run: {raise_open_files() or 'smdp-launch doctor'}",
    ),
    (
        re.compile(
            r"cannot open shared object file|undefined symbol|the simulated host could not be set up"
            r"|smdp-engine|No space left on device|Read-only file system"
        ),
        lambda: _DOCTOR,
    ),
)


#: Errors of scripts that need a GPU. The first is from Accelerate, which divides by the number of GPUs.
_NO_GPU = re.compile(
    r"device_count\(\)[\s~^]*ZeroDivisionError|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|Torch not compiled with CUDA enabled|ProcessGroupNCCL is only supported with GPUs"
)
#: torch does not report the error of the system when it cannot write a file.
_CUT_FILE = re.compile(r"PytorchStreamWriter failed writing|inline_container\.cc[^\n]*unexpected pos")
#: Bytes. A file that did not fit can leave a part of a block.
_LITTLE_SPACE = 4 << 20


def environment_causes(plan: Plan, reason: str, state: Path) -> Iterator[str]:
    """What to do about a failure of a local run, if its FailureReason shows that the environment caused it.

    Containers have an environment of their own.

    Args:
        state: the folder with the files of local runs.
    """
    if plan.local is not None and _is_full(state):
        yield disk.full(state)
        return
    if plan.local is None or plan.local.containers:
        return
    if not plan.local.cuda_on_cpu and _NO_GPU.search(reason):
        yield "the script needs a GPU; to emulate CUDA on the CPU, add --cuda-on-cpu (docs/how-to/cuda-on-cpu.md)"
        return
    if _CUT_FILE.search(reason):
        yield f"torch could not write the whole file, as on a full disk; check the free space: df -h {state}"
        return
    module = _MISSING_MODULE.search(reason)
    if module is not None:
        top = module[1].partition(".")[0]
        if not packages.is_installed(top):
            command = install(_PACKAGES.get(top, top.replace("_", "-")))
            yield f"{top} is not installed here; run: {command} (or add it to the script's requirements.txt)"
        return
    found = next((text for pattern, text in _CAUSES if pattern.search(reason)), None)
    if found is not None:
        yield found()


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LITTLE_SPACE
    except OSError:
        return False
