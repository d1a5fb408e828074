"""State folders and files: owned by the user, not writable by other users, opened without following symbolic links.

In a folder that several users share, another user may have prepared the state: a folder with the address of a server,
or a link to a file that only this user may write. Such state is refused, not repaired.

The parent folder is not checked. A user who may rename its entries can replace the job's script as well.

Windows has neither owners nor modes in this sense. There only links are refused: the access list of a folder in the
user's profile keeps other users out.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import or_
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HAS_OWNERS = hasattr(os, "geteuid")


def _flags(*names: str) -> int:
    """The flags of `os.open` with these names, without those that this system does not have."""
    return reduce(or_, (getattr(os, name, 0) for name in names))


# O_NONBLOCK: opening a pipe, which is refused, must not wait for its other end. O_BINARY: without it Windows changes
# line ends.
_OPEN = _flags("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_BINARY")
_CREATE = _flags("O_CLOEXEC", "O_BINARY")


class NotPrivate(OSError):
    """Another user may have prepared the state, or may change it. `strerror` is the whole message."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EPERM, message)

    def __str__(self) -> str:
        return str(self.strerror)


def make_folder(path: Path) -> None:
    """Create the folder unless it exists. An existing empty folder gets mode 0700.

    Raises NotPrivate, and OSError if it cannot be created.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _close_to_others(path)
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raises NotPrivate unless the user owns the folder and all of its entries, and only the user may write it."""
    _check(path, path.lstat(), stat.S_ISDIR, "folder")
    with os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a temporary file that was renamed meanwhile
                _check_owner(Path(entry.path), entry.stat(follow_symlinks=False))


def open_file(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor. Raises NotPrivate unless the user owns it and only the user may
    write it."""
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise _link(path)
    try:
        descriptor = os.open(path, flags | _OPEN, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(path) from None
        raise
    try:
        _check(path, os.fstat(descriptor), stat.S_ISREG, "regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path) -> bytes:
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _close_to_others(path: Path) -> None:
    """Set mode 0700 on a folder that was created for the state with `mkdir` and any umask. `check_folder` then finds
    entries that other users have created meanwhile."""
    status = path.lstat()
    if _HAS_OWNERS and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not any(path.iterdir()):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(folder, 0o700)
        finally:
            os.close(folder)


def _check(path: Path, status: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _link(path)
    _check_owner(path, status)
    if not is_kind(status.st_mode):
        raise NotPrivate(f"{path} is no {kind}: remove it")
    if _HAS_OWNERS and status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise NotPrivate(
            f"other users can write {path} (mode {mode:04o}): remove it, or check that you own all of it and run "
            f"`chmod go-w {path}`"
        )


def _check_owner(path: Path, status: os.stat_result) -> None:
    if _HAS_OWNERS and status.st_uid != os.geteuid():
        raise NotPrivate(
            f"{path} belongs to another user (uid {status.st_uid}, yours is {os.geteuid()}): remove it, or work in a "
            f"folder of your own"
        )


def _link(path: Path) -> NotPrivate:
    return NotPrivate(f"{path} is a symbolic link, which is not followed: replace it by a real file or folder")


def write_bytes(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` in one step: a reader, or a crash, finds the old content or the new, never a part of it."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CREATE, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
