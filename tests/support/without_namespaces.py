"""Runs a command for which the system refuses namespaces:

    python -m tests.support.without_namespaces filter|rights|limit COMMAND...

filter: a filter of system calls refuses unshare, setns and mount, as a container's does.
rights: the command is root without rights, as in a container without privileges.
limit: the command is another user, and the limit of user namespaces is 0.
limit-lifted: as limit; then run the command that its output names after "sudo ", and the first command again.

Needs root.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

WAYS = ("filter", "rights", "limit")
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_EPERM, _ENOSYS = 1, 38
#: Numbers of x86_64; clone3 is refused as unknown, so that the C library uses clone.
_REFUSED = {"unshare": (272, _EPERM), "setns": (308, _EPERM), "mount": (165, _EPERM), "clone3": (435, _ENOSYS)}
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 22, 38, 24
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_CLONE_NEWUSER = 0x10000000
_OTHER = 65534


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBRARY, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


def refuse_by_filter() -> None:
    code = [(_LOAD, 0, 0, 0)]
    for number, error in _REFUSED.values():
        code += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    code.append((_RETURN, 0, 0, _ALLOW))
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_SECCOMP, 2, ctypes.byref(_Program(len(code), ctypes.addressof(instructions))), 0, 0)


def drop_rights() -> None:
    """The next program has no capability, although it is root."""
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)


def enter_a_place_with_limit() -> None:
    """Enter a user namespace whose own limit is 0. This process keeps its rights there until the next program."""
    _call("unshare", _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_OTHER} 0 1")
    Path("/proc/self/gid_map").write_text(f"{_OTHER} 0 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _after_the_remedy(command: list[str]) -> int:
    """Run the command, lift the limit with the command that it names, and run it again; only its last output counts."""
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"sudo sysctl -w (?P<name>[\w.]+)=(?P<value>\d+)", first.stdout + first.stderr)
    if found is None:
        sys.stderr.write(f"no remedy in {first.stdout}{first.stderr}")
        return 1
    # What sysctl does. This process, unlike a sysctl that it would start, still has the right to.
    Path("/proc/sys", *found["name"].split(".")).write_text(found["value"])
    return subprocess.run(command, check=False).returncode


def main() -> None:
    way, *command = sys.argv[1:]
    if way == "filter":
        refuse_by_filter()
    elif way == "rights":
        drop_rights()
    else:
        enter_a_place_with_limit()
    if way == "limit-lifted":
        sys.exit(_after_the_remedy(command))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
