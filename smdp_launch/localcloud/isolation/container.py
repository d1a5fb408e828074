"""Set up process 1 of a container host before it runs the entrypoint: its root, its devices, its limits."""

from __future__ import annotations

import ctypes
import os
import warnings  # noqa: F401 (os.execvpe imports it, which fails once the root has changed)
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.localcloud.isolation.namespaces import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    View,
    begin,
    bind,
    bind_at,
    call,
    mount,
)

_MNT_DETACH = 2
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_LAST_CAPABILITY = 40
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: the capabilities that docker leaves to a container, without mknod.
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31})
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
#: Parts of /proc that docker makes read-only too: root in the container is also root on this machine.
_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")


@dataclass(frozen=True)
class Container:
    """The image of a host.

    Args:
        image: the mounted image, shared by the job's hosts and never written.
        layer: an empty folder of the host's own, for the files that it writes.
        folder: the image's working directory.
    """

    image: Path
    layer: Path
    folder: str


def set_up(container: Container, view: View, mount_inputs: Callable[[], None] = lambda: None) -> None:
    """Replace this machine's files with the image's, for this process and its children.

    `mount_inputs` is as in `namespaces.set_up`.
    """
    begin(view, mount_inputs)
    root = _overlay(container)
    _kernel_files(root)
    for source, name in ((view.ml, "opt/ml"), (view.tmp, "tmp"), (view.hosts_file, "etc/hosts")):
        _bind_into(source, root / name)
    _change_root(root)
    os.chdir(container.folder)
    _limit()


def _overlay(container: Container) -> Path:
    upper, work, root = (container.layer / name for name in ("upper", "work", "root"))
    for folder in (container.layer, upper, work, root):
        folder.mkdir(exist_ok=True)
    mount("overlay", str(root), "overlay", 0, f"lowerdir={container.image},upperdir={upper},workdir={work}")
    return root


def _kernel_files(root: Path) -> None:
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for name in ("proc", "sys", "dev"):
        (root / name).mkdir(exist_ok=True)
    mount("proc", str(root / "proc"), "proc", flags)
    for name in _READ_ONLY:
        path = root / "proc" / name
        if path.exists():
            bind(path, path)
            mount(None, str(path), None, MS_BIND | MS_REMOUNT | MS_RDONLY | flags)
    mount("sysfs", str(root / "sys"), "sysfs", flags | MS_RDONLY)
    devices = root / "dev"
    mount("tmpfs", str(devices), "tmpfs", MS_NOSUID, "mode=755")
    for name in _DEVICES:
        _bind_into(Path("/dev", name), devices / name)
    for name, target in _LINKS.items():
        (devices / name).symlink_to(f"/proc/self/{target}")
    (devices / "shm").mkdir()
    mount("tmpfs", str(devices / "shm"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def _bind_into(source: Path, target: Path) -> None:
    """Remove links from the target's path first: links of the image would lead to files of this machine."""
    for part in (target, *target.parents):
        if part.is_symlink():
            part.unlink()
    bind_at(source, target)


def _change_root(root: Path) -> None:
    old = root / ".old"
    old.mkdir(exist_ok=True)
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_pivot_root_number(), os.fsencode(root), os.fsencode(old)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "pivot_root")
    os.chdir("/")
    call("umount2", b"/.old", _MNT_DETACH)
    with suppress(OSError):
        Path("/.old").rmdir()


def _pivot_root_number() -> int:
    """The number of the system call; the C library has no function for it."""
    return 155 if os.uname().machine == "x86_64" else 41


def _limit() -> None:
    """Drop all rights that docker does not give: to mounts, devices, modules, this machine's clock and network."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in _KEPT_CAPABILITIES:
            with suppress(OSError):  # this kernel does not have it
                call("prctl", _PR_CAPBSET_DROP, ctypes.c_ulong(capability))
    zero = ctypes.c_ulong(0)
    call("prctl", _PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
