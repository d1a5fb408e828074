"""Linux namespaces for a simulated host: the system calls, and a trial whether the system allows them.

Standard library only, and runnable as a file: the trial starts this file in an interpreter of its own, because a
process cannot leave the namespaces that it entered.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

FORCE = "SMDP_LOCAL_ISOLATION"  # "tree": use no namespaces
ML = Path("/opt/ml")
#: MPI launchers write a job's variables, credentials included, to this file.
_ENVIRONMENT = Path("/etc/environment")
FUSE = "/dev/fuse"
_SHM = Path("/dev/shm")  # noqa: S108 (the machine's shared memory, which is mounted over)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def call(function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0. Raises OSError, with the function's name as its file."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError that names source and target."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    try:
        call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"mount {source or kind} on {target}") from None


def bind(source: Path, target: Path) -> None:
    """Mount `source`, with all mounts below it, at `target`, which must exist and be of the same kind."""
    mount(str(source), str(target), None, MS_BIND | MS_REC)


def bind_read_only(source: Path, target: Path) -> None:
    """As `bind`, but read-only; mounts below `source` stay as they are."""
    bind(source, target)
    # Without root, a remount must keep the flags of the original mount.
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount(None, str(target), None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def die_with_parent(number: int | None = None) -> None:
    """Have the kernel send `number`, SIGKILL by default, to this process when its parent ends.

    Call it after `enter`: entering a user namespace clears it. A parent that has already ended is not noticed.
    """
    # Other systems import this module, and may have no SIGKILL.
    call("prctl", _PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL if number is None else number))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    call("prctl", _PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def enter() -> None:
    """Enter own namespaces for the host name, System V IPC and, for children, processes.

    Without root this needs a user namespace, in which the user is root as in a training container.
    """
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID
    call("unshare", flags if user == 0 else flags | _CLONE_NEWUSER)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


@dataclass(frozen=True)
class Mount:
    """A shared folder, by a path without links, and the path below the host's `ml` at which the host mounts it."""

    source: Path
    target: Path
    read_only: bool


@dataclass(frozen=True)
class View:
    """The folders that a host sees instead of this machine's. All of them exist and are the host's own.

    Args:
        opt: an empty folder for a private /opt, used where the machine has no /opt/ml.
        visible: paths that the run needs. Those below /tmp and /dev/shm are mounted below the new ones too.
    """

    name: str
    ml: Path
    tmp: Path
    opt: Path
    hosts_file: Path
    visible: tuple[Path, ...]
    mounts: tuple[Mount, ...] = ()


def set_up(view: View, mount_inputs: Callable[[], None] = lambda: None) -> None:
    """Apply the view to this process, the host's process 1, and its children.

    The parent, the host's monitor, still sees this machine's files.

    Args:
        mount_inputs: mounts the channels that are served while the host trains.
    """
    begin(view, mount_inputs)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if _SHM.is_dir():
        _mount_private_shm(view)
    bind(view.hosts_file, Path("/etc/hosts"))
    if _ENVIRONMENT.is_file():
        bind(_copied(_ENVIRONMENT, view.hosts_file.parent), _ENVIRONMENT)
    if ML.is_dir():
        bind(view.ml, ML)
    else:
        _bind_private_opt(view)
    _bind_tmp(view)


def begin(view: View, mount_inputs: Callable[[], None]) -> None:
    """Enter a mount namespace, set the host's name, mount its shared folders and call `mount_inputs`."""
    call("unshare", _CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    call("sethostname", view.name.encode(), ctypes.c_size_t(len(view.name)))
    mount_shared(view)
    mount_inputs()


def mount_served(target: str) -> int:
    """Mount a file system that a process of this machine serves. Returns the descriptor to serve it with.

    In a host's own mount namespace it is unmounted with the host's last process. Raises OSError.
    """
    try:
        descriptor = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"open {FUSE}") from None
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    try:
        mount("smdp", target, "fuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _copied(file: Path, folder: Path) -> Path:
    copy = folder / file.name
    copy.write_bytes(file.read_bytes())
    return copy


def mount_shared(view: View) -> None:
    """Mount the shared folders below `ml`. Call it while this machine's files are visible, before `ml` is bound."""
    for one in view.mounts:
        descriptor = _opened(one.source)
        try:
            (bind_read_only if one.read_only else bind)(Path(f"/proc/self/fd/{descriptor}"), one.target)
        finally:
            os.close(descriptor)


def _opened(folder: Path) -> int:
    """A descriptor of the folder. Raises OSError where its path contains a link.

    The path was checked before: another job, which may write there, has replaced a folder by a link since.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open("/", flags)
    for part in folder.parts[1:]:
        outer = descriptor
        try:
            descriptor = os.open(part, flags, dir_fd=outer)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        finally:
            os.close(outer)
    return descriptor


def _mount_private_shm(view: View) -> None:
    """Hosts must not share /dev/shm, but the run's own folders may be below it."""
    needed = _outermost((view.ml, view.tmp, view.opt, view.hosts_file, *view.visible), _SHM)
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in needed]
    mount("tmpfs", str(_SHM), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for path, descriptor in opened:
        bind_at(Path(f"/proc/self/fd/{descriptor}"), path)
        os.close(descriptor)


def _bind_private_opt(view: View) -> None:
    """Mount a copy of /opt that has an `ml`, without creating that folder on the machine itself."""
    for child in sorted(Path("/opt").iterdir()):
        target = view.opt / child.name
        if child.is_symlink():
            target.symlink_to(child.readlink())
        else:
            bind_at(child, target)
    bind_at(view.ml, view.opt / "ml")
    bind(view.opt, Path("/opt"))


def bind_at(source: Path, target: Path) -> None:
    """As `bind`; create the target if it does not exist."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    bind(source, target)


def _bind_tmp(view: View) -> None:
    shared = Path("/tmp").resolve()  # noqa: S108 (this is the folder being replaced)
    for path in _outermost(view.visible, shared):
        bind_at(path, view.tmp / path.relative_to(shared))
    bind(view.tmp, shared)


def _outermost(paths: Iterable[Path], root: Path) -> list[Path]:
    """The paths below `root` that exist, without those below another of them."""
    inside = sorted({path for path in paths if root in path.parents and path.exists()})
    kept: list[Path] = []
    for path in inside:
        if not kept or kept[-1] not in path.parents:
            kept.append(path)
    return kept


def refusal(*, with_inputs: bool = False) -> str | None:
    """Try whether simulated hosts can have namespaces; the reason why not, or None where they can.

    Args:
        with_inputs: whether they can also mount channels that are served while they train.
    """
    if os.environ.get(FORCE) == "tree":
        return f"{FORCE}=tree is set"
    if not sys.platform.startswith("linux"):
        return "namespaces need Linux"
    command = [sys.executable, "-I", "-S", __file__, *(["inputs"] if with_inputs else [])]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return "the trial of the system's namespaces timed out"
    return None if trial.returncode == 0 else trial.stderr.strip().rpartition("\n")[2] or "refused"


def _try_out(*, with_inputs: bool = False) -> int:
    """Set up a host on empty folders; write the first error to standard error."""
    with tempfile.TemporaryDirectory(prefix="smdp-trial-") as folder:
        root = Path(folder).resolve()
        shared = Mount(root / "shared", root / "ml" / "shared", read_only=True)
        view = View("trial", root / "ml", root / "tmp", root / "opt", root / "hosts", (), (shared,))
        for path in (view.ml, view.tmp, view.opt, shared.source, shared.target, view.ml / "served"):
            path.mkdir()
        view.hosts_file.touch()
        try:
            enter()
        except OSError as error:
            return _report(error)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                served = str(view.ml / "served")
                set_up(view, lambda: os.close(mount_served(served)) if with_inputs else None)
                status = 0
            except OSError as error:
                _report(error)
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _report(error: OSError) -> int:
    # unshare(2): more user namespaces than user.max_user_namespaces permits.
    is_limit = error.errno == errno.ENOSPC and error.filename == "unshare"
    sys.stderr.write(f"{error.filename}: {'the limit of namespaces is reached' if is_limit else error.strerror}\n")
    sys.stderr.flush()
    return 1


if __name__ == "__main__":
    sys.exit(_try_out(with_inputs=sys.argv[1:] == ["inputs"]))
