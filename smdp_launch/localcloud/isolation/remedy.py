"""Why this system refuses namespaces, and the command that permits them."""

from __future__ import annotations

import os
from pathlib import Path

from smdp_launch.localcloud.isolation import namespaces

#: Settings of Linux that refuse user namespaces: the name, the value that refuses, and one that permits.
_SETTINGS = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
_CONTAINER = (
    "start the container with `docker run --privileged`, or with `docker run --cap-add SYS_ADMIN "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined`"
)


def explained(reason: str, what: str = "isolation") -> str:
    """The reason of `namespaces.refusal`, and what to do about it.

    Args:
        what: what needs namespaces, the subject of the sentence.
    """
    return f"{what} needs Linux namespaces, which are refused ({reason}): {remedy()}"


def remedy() -> str:
    """What to do where namespaces are refused, as an imperative."""
    if os.environ.get(namespaces.FORCE) == "tree":
        return f"unset {namespaces.FORCE}"
    is_root = os.geteuid() == 0
    if not is_root:
        for name, refuses, permits in _SETTINGS:
            if _read(f"/proc/sys/{name.replace('.', '/')}") == refuses:
                return f"run `sudo sysctl -w {name}={permits}`"
    if is_root or _status("Seccomp") == "2":  # root without this right, or a filter of system calls: a container
        return _CONTAINER
    return "run as root, or have the administrator permit user namespaces"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _status(field: str) -> str:
    """A field of this process's status in /proc."""
    found = [line.split()[1] for line in _read("/proc/self/status").splitlines() if line.startswith(f"{field}:")]
    return found[0] if found else ""
