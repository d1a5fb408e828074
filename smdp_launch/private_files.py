"""Folders and files of state: the user's own, not writable by other users, opened without following symbolic links.

In a folder that several users share, another user may have prepared what lies where state is expected: a folder with
the address of a server, a link to a file that only we may write. Such state is refused, not repaired.

The folder above is not judged. A user who may rename its entries can replace the job's script as well.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(OSError):
    """State that another user may have prepared or may change. `strerror` says what is wrong, where, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EPERM, message)

    def __str__(self) -> str:
        return str(self.strerror)


def make_folder(path: Path) -> None:
    """The folder, made unless it is there. One that is empty is closed to other users.

    Raises NotPrivate, and OSError where it cannot be made.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _close_to_others(path)
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raises NotPrivate unless it is a folder of ours that only we may write, and all that lies in it is ours."""
    _check(path, path.lstat(), stat.S_ISDIR, "folder")
    with os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # a temporary file that has its name by now
                _check_owner(Path(entry.path), entry.stat(follow_symlinks=False))


def open_file(path: Path, flags: int) -> int:
    """The descriptor of a regular file. Raises NotPrivate unless it is ours and only we may write it."""
    try:
        # A pipe, which is refused below, must not make us wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
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
    """A folder that was made for the state, by `mkdir` with any umask; what others put there meanwhile is found."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not any(path.iterdir()):
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
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise NotPrivate(
            f"other users can write {path} (mode {mode:04o}): remove it, or make sure that all in it is yours and run "
            f"`chmod go-w {path}`"
        )


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise NotPrivate(
            f"{path} belongs to another user (uid {status.st_uid}, yours is {os.geteuid()}): remove it, or work in a "
            f"folder of your own"
        )


def _link(path: Path) -> NotPrivate:
    return NotPrivate(f"{path} is a symbolic link, which is not followed: put a real one in its place")


def write_bytes(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` in one step: a reader, or a crash, sees the old content or the new, never a part."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
