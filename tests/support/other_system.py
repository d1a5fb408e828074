"""Runs the command as on Windows or macOS, as far as Linux can show it:

    python -m tests.support.other_system windows|macos ARGUMENT...

The launcher's modules, not the libraries below them, get modules without what the other system does not have: no
``fcntl``, an ``os`` without ``os.fork``, ``os.name`` and ``sys.platform`` of the other system. No process reads
``/proc``. Paths remain those of Linux: property tests with ``PureWindowsPath`` cover paths.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from types import ModuleType
from typing import Any

SYSTEMS = ("windows", "macos")
_OURS = ("smdp_launch", "__restricted__")

#: Modules that Python has on Linux and not on the other system.
_NO_MODULES = {
    "windows": {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "posix", "syslog", "curses"},
    "macos": {"spwd", "ossaudiodev"},
}
_NOT_ON_MACOS = {
    "os": """memfd_create sched_getaffinity sched_setaffinity sched_getscheduler sched_setscheduler O_PATH O_TMPFILE
        O_DIRECT O_LARGEFILE O_RSYNC pidfd_open eventfd eventfd_read eventfd_write unshare setns posix_fallocate
        posix_fadvise getrandom copy_file_range splice getxattr setxattr listxattr removexattr pipe2 getresuid
        getresgid setresuid setresgid fdatasync""",
    "signal": "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT SIGPOLL pidfd_send_signal",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK AF_ALG SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED",
    "select": "epoll EPOLLIN EPOLLOUT EPOLLHUP EPOLLERR",
}
_NOT_ON_WINDOWS = {
    "os": """fork forkpty getuid geteuid getgid getegid getgroups getgrouplist getpgid getpgrp getpriority getresuid
        getresgid getsid initgroups setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups
        setpgid setpriority setsid killpg nice chown fchown lchown fchmod chroot fchdir mkfifo mknod major minor
        makedev pathconf fpathconf pathconf_names sysconf sysconf_names confstr confstr_names statvfs fstatvfs sync
        openpty login_tty posix_fallocate posix_fadvise posix_spawn posix_spawnp pread pwrite preadv pwritev readv
        writev pipe2 sendfile sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
        sched_get_priority_max sched_get_priority_min sched_getscheduler sched_setscheduler memfd_create eventfd
        eventfd_read eventfd_write pidfd_open unshare setns getrandom getloadavg uname wait wait3 wait4 waitid
        WNOHANG WUNTRACED WCONTINUED WIFEXITED WEXITSTATUS WIFSIGNALED WTERMSIG WIFSTOPPED ctermid ttyname tcgetpgrp
        tcsetpgrp copy_file_range splice getxattr setxattr listxattr removexattr register_at_fork fdatasync lockf
        environb getenvb O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_DIRECTORY O_PATH O_SYNC O_DSYNC O_NOCTTY O_ASYNC
        O_TMPFILE O_DIRECT O_NOATIME O_LARGEFILE EX_OK EX_USAGE EX_DATAERR EX_NOINPUT EX_NOUSER EX_NOHOST
        EX_UNAVAILABLE EX_SOFTWARE EX_OSERR EX_OSFILE EX_CANTCREAT EX_IOERR EX_TEMPFAIL EX_PROTOCOL EX_NOPERM
        EX_CONFIG""",
    "socket": """AF_UNIX AF_NETLINK AF_PACKET AF_VSOCK AF_ALG SO_REUSEPORT SO_PEERCRED send_fds recv_fds CMSG_LEN
        CMSG_SPACE SCM_RIGHTS SOCK_CLOEXEC SOCK_NONBLOCK""",
    "select": "poll epoll EPOLLIN EPOLLOUT EPOLLHUP EPOLLERR POLLIN POLLOUT POLLHUP POLLERR",
    "time": "tzset clock_gettime clock_getres CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_BOOTTIME pthread_getcpuclockid",
    "shutil": "chown",
}
_SIGNALS_OF_WINDOWS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}
_ONLY_POSIX_SIGNAL_CALLS = """alarm pause pthread_kill pthread_sigmask setitimer getitimer sigpending sigwait
    sigwaitinfo sigtimedwait siginterrupt pidfd_send_signal ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF SIG_BLOCK
    SIG_UNBLOCK SIG_SETMASK"""


class Restricted(ModuleType):
    """A view of a module that has some names less, and some with another value."""

    def __init__(self, real: ModuleType, missing: set[str], **replaced: Any) -> None:
        super().__init__(real.__name__)
        object.__getattribute__(self, "__dict__").update(_real=real, _missing=missing, _replaced=replaced)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name in own["_missing"]:
            raise AttributeError(f"module {own['_real'].__name__!r} has no attribute {name!r} on this system")
        return own["_replaced"][name] if name in own["_replaced"] else getattr(own["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "__dict__")["_real"], name, value)


def _select_of_sockets(readers: Any, writers: Any, others: Any, *timeout: Any) -> Any:
    """Windows waits for sockets only."""
    import select
    import socket

    for one in (*readers, *writers, *others):
        if not isinstance(one, socket.socket):
            raise OSError(10038, "An operation was attempted on something that is not a socket")
    return select.select(readers, writers, others, *timeout)


def _restricted(system: str) -> dict[str, ModuleType]:
    missing = {name: set(text.split()) for name, text in _NOT_ON_MACOS.items()}
    replaced: dict[str, dict[str, Any]] = {"os": {}, "sys": {"platform": "darwin"}}
    if system == "windows":
        import signal

        missing = {name: set(text.split()) for name, text in _NOT_ON_WINDOWS.items()}
        posix = {one for one in dir(signal) if one.startswith("SIG")} - _SIGNALS_OF_WINDOWS
        missing["signal"] = posix | set(_ONLY_POSIX_SIGNAL_CALLS.split())
        replaced = {"os": {"name": "nt"}, "sys": {"platform": "win32"}, "select": {"select": _select_of_sockets}}
    names = sorted(missing.keys() | replaced.keys())
    return {
        name: Restricted(importlib.import_module(name), missing.get(name, set()), **replaced.get(name, {}))
        for name in names
    }


def _no_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def become(system: str) -> None:
    """Restrict the launcher's modules, which must not be imported yet."""
    assert not any(one.startswith(_OURS) for one in sys.modules)
    modules, absent, real_import = _restricted(system), _NO_MODULES[system], builtins.__import__

    def restricted_import(name: str, globals: Any = None, *more: Any, **named: Any) -> Any:
        if (globals or {}).get("__name__", "").startswith(_OURS):
            top = name.partition(".")[0]
            if top in absent:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if top in modules:
                return modules[top]
        return real_import(name, globals, *more, **named)

    builtins.__import__ = restricted_import
    sys.addaudithook(_no_proc)


def main() -> None:
    system, *arguments = sys.argv[1:]
    assert system in SYSTEMS
    sys.argv[:] = ["smdp-launch", *arguments]
    become(system)
    if arguments[:1] == ["-c"]:
        exec(compile(arguments[1], "<command>", "exec"), {"__name__": "__restricted__"})
        return
    importlib.import_module("smdp_launch.cli").main()


if __name__ == "__main__":
    assert os.name == "posix"
    main()
