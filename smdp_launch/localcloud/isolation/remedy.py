"""Why this system refuses namespaces, and the command that permits them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from smdp_launch.localcloud.isolation import namespaces

#: Settings of Linux that refuse user namespaces: the name, the value that refuses, and one that permits.
_SETTINGS = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
#: Of docker and podman.
_CONTAINER_RIGHTS = "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
_IN_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))


class Remedy(NamedTuple):
    """What to do where namespaces are refused: an imperative, and the command if there is one."""

    text: str
    command: str | None = None

    def __str__(self) -> str:
        return self.text if self.command is None else f"{self.text} (`{self.command}`)"


def explained(reason: str, what: str = "isolation") -> str:
    """The reason of `namespaces.refusal`, and what to do about it.

    Args:
        what: what needs namespaces, the subject of the sentence.
    """
    return f"{what} needs Linux namespaces, which are refused ({reason}): {remedy()}"


def remedy() -> Remedy:
    if os.environ.get(namespaces.FORCE) == "tree":
        return Remedy("remove the variable", f"unset {namespaces.FORCE}")
    is_root = os.geteuid() == 0
    settings = [
        f"{name}={permits}"
        for name, refuses, permits in _SETTINGS
        if not is_root and _read(f"/proc/sys/{name.replace('.', '/')}") == refuses
    ]
    if settings:
        return Remedy("permit user namespaces", f"sudo sysctl -w {' '.join(settings)}")
    # Root without this right, or a filter of system calls, is in a container, which not every engine marks with a file.
    if is_root or _status("Seccomp") == "2" or any(one.exists() for one in _IN_CONTAINER):
        return Remedy("start the container with the right to make namespaces", f"docker run {_CONTAINER_RIGHTS} ...")
    return Remedy("run as root, or have the administrator permit user namespaces")


def inputs_remedy() -> Remedy:
    """What to do where hosts cannot mount channels that are served while they train."""
    if namespaces.refusal() is not None:
        return remedy()
    device = Path(namespaces.FUSE)
    in_container = any(one.exists() for one in _IN_CONTAINER)
    if in_container:
        return Remedy("start the container with the device", f"docker run --device {device} {_CONTAINER_RIGHTS} ...")
    sudo = "" if os.geteuid() == 0 else "sudo "
    if not device.exists():
        return Remedy("load the kernel's module", f"{sudo}modprobe fuse")
    if not os.access(device, os.R_OK | os.W_OK):
        return Remedy("permit every user to open the device, as most systems do", f"{sudo}chmod 666 {device}")
    return Remedy("run as root, or on Linux 4.18 or later")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _status(field: str) -> str:
    """A field of this process's status in /proc."""
    found = [line.split()[1] for line in _read("/proc/self/status").splitlines() if line.startswith(f"{field}:")]
    return found[0] if found else ""
