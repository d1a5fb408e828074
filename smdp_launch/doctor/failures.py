"""Explains failures of local runs that this machine or this environment caused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

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


def environment_causes(plan: Plan, reason: str) -> Iterator[str]:
    """What to do about a failure of a local run, if its FailureReason shows that the environment caused it.

    Containers have an environment of their own.
    """
    if plan.local is None or plan.local.containers:
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
