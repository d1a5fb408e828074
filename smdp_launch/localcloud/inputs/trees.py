"""The files that a channel's file system shows: objects of a bucket, or a folder of this machine.

The threads of a file system server call a tree at the same time. Errors are OSError with the number that the kernel
passes on to the script. Node 1 is the channel's own folder.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from smdp_launch.localcloud.inputs.below import open_below
from smdp_launch.localcloud.inputs.wire import Attributes

ROOT = 1
_FOLDER_MODE, _FILE_MODE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
_FOREVER, _BRIEFLY = 86400, 1  # seconds
_UNMAPPED = 65534


class Item(NamedTuple):
    """An entry of a folder. `attributes`: None where they would have to be looked up."""

    name: bytes
    inode: int
    kind: int  # the mode's bits for the kind of the file
    attributes: Attributes | None


class Tree(Protocol):
    """`valid`: the seconds for which the kernel may use names and attributes again. `keeps`: whether the kernel may
    use the bytes of a file again when it is opened again."""

    valid: int
    keeps: bool

    def lookup(self, folder: int, name: bytes) -> Attributes: ...
    def attributes(self, node: int) -> Attributes: ...
    def items(self, folder: int) -> list[Item]: ...
    def open_file(self, node: int) -> int: ...
    def target(self, node: int) -> bytes: ...
    def forget(self, node: int, lookups: int) -> None: ...
    def total(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Object:
    """An object of the channel: its path in the channel, and the file that holds it when the job starts.

    Args:
        size: in bytes.
        modified: the file's modification time, in nanoseconds since 1970.
    """

    path: str
    file: str
    size: int
    modified: int

    def line(self) -> str:
        return json.dumps([self.path, self.file, self.size, self.modified]) + "\n"


def listing(file: Path) -> Iterator[Object]:
    """Read the objects of a channel, one on each line."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield Object(*json.loads(line))


class ObjectTree:
    """Objects as files. The names and sizes are those of the listing, for as long as the job runs.

    An object that was replaced since can no longer be opened (ESTALE), nor one that was deleted (ENOENT). A file that
    is open keeps its bytes.
    """

    valid = _FOREVER
    keeps = False  # each opening reads the object again, as a GET does

    def __init__(self, objects: Iterable[Object]) -> None:
        """Raises FileExistsError where an object is the folder of another object."""
        self._folders: dict[int, dict[bytes, int]] = {ROOT: {}}
        self._objects: dict[int, Object] = {}
        self._nodes = itertools.count(ROOT + 1)
        self._newest = 0
        for one in objects:
            self._add(one)

    def _add(self, one: Object) -> None:
        *parents, name = [os.fsencode(part) for part in one.path.split("/")]
        folder = ROOT
        for part in parents:
            inside = self._folders[folder]
            if part not in inside:
                inside[part] = next(self._nodes)
                self._folders[inside[part]] = {}
            folder = inside[part]
            if folder in self._objects:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), one.path)
        if name in self._folders[folder]:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), one.path)
        node = self._folders[folder][name] = next(self._nodes)
        self._objects[node] = one
        self._newest = max(self._newest, one.modified)

    def lookup(self, folder: int, name: bytes) -> Attributes:
        node = self._inside(folder).get(name)
        if node is None:
            raise _error(errno.ENOENT)
        return self.attributes(node)

    def attributes(self, node: int) -> Attributes:
        one = self._objects.get(node)
        if one is not None:
            return Attributes(node, _FILE_MODE, one.size, one.modified)
        self._inside(node)
        return Attributes(node, _FOLDER_MODE, 0, self._newest)

    def items(self, folder: int) -> list[Item]:
        found = []
        for name, node in self._inside(folder).items():
            attributes = self.attributes(node)
            found.append(Item(name, node, stat.S_IFMT(attributes.mode), attributes))
        return found

    def open_file(self, node: int) -> int:
        one = self._objects.get(node)
        if one is None:
            raise _error(errno.EISDIR if node in self._folders else errno.ENOENT)
        descriptor = os.open(one.file, _for_reading())
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != (one.size, one.modified):
            os.close(descriptor)
            raise _error(errno.ESTALE)
        return descriptor

    def target(self, node: int) -> bytes:
        raise _error(errno.EINVAL)

    def forget(self, node: int, lookups: int) -> None:
        """Nodes stay."""

    def total(self) -> tuple[int, int]:
        """The number of files, and their bytes."""
        return len(self._objects), sum(one.size for one in self._objects.values())

    def _inside(self, folder: int) -> dict[bytes, int]:
        inside = self._folders.get(folder)
        if inside is None:
            raise _error(errno.ENOTDIR if folder in self._objects else errno.ENOENT)
        return inside


class FolderTree:
    """A folder of this machine as it is now: a change is visible within a second."""

    valid = _BRIEFLY
    keeps = True  # the kernel drops the bytes of a file that has changed

    def __init__(self, folder: str) -> None:
        """`folder`: a path without links. Raises OSError."""
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._paths: dict[int, tuple[bytes, ...]] = {ROOT: ()}
        self._nodes: dict[tuple[bytes, ...], int] = {(): ROOT}
        self._lookups: dict[int, int] = {ROOT: 1}
        self._numbers = itertools.count(ROOT + 1)

    def lookup(self, folder: int, name: bytes) -> Attributes:
        path = (*self._path(folder), name)
        status = self._status(path)
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                node = self._nodes[path] = next(self._numbers)
                self._paths[node] = path
            self._lookups[node] = self._lookups.get(node, 0) + 1
        return _of(node, status)

    def attributes(self, node: int) -> Attributes:
        return _of(node, self._status(self._path(node)))

    def items(self, folder: int) -> list[Item]:
        descriptor = self._opened(self._path(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as found:
                return [Item(os.fsencode(one.name), one.inode(), _kind(one), None) for one in found]
        finally:
            os.close(descriptor)

    def open_file(self, node: int) -> int:
        descriptor = self._opened(self._path(node), _for_reading())
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _error(errno.EACCES)  # a device or a pipe of this machine
        return descriptor

    def target(self, node: int) -> bytes:
        descriptor = self._opened(self._path(node), _for_its_status())
        try:
            return os.readlink(b"", dir_fd=descriptor)
        finally:
            os.close(descriptor)

    def forget(self, node: int, lookups: int) -> None:
        with self._lock:
            if node == ROOT or node not in self._lookups:
                return
            self._lookups[node] -= lookups
            if self._lookups[node] <= 0:
                del self._lookups[node]
                del self._nodes[self._paths.pop(node)]

    def total(self) -> tuple[int, int]:
        found = os.fstatvfs(self._root)
        return found.f_files, found.f_blocks * found.f_frsize

    def _path(self, node: int) -> tuple[bytes, ...]:
        with self._lock:
            path = self._paths.get(node)
        if path is None:
            raise _error(errno.ENOENT)
        return path

    def _status(self, path: tuple[bytes, ...]) -> os.stat_result:
        descriptor = self._opened(path, _for_its_status())
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _opened(self, path: tuple[bytes, ...], flags: int) -> int:
        return open_below(self._root, b"/".join(path) or b".", flags)


def _of(node: int, status: os.stat_result) -> Attributes:
    """In a host the user is root, and other users do not exist."""
    owner = 0 if status.st_uid == os.geteuid() else _UNMAPPED
    group = 0 if status.st_gid == os.getegid() else _UNMAPPED
    return Attributes(node, status.st_mode, status.st_size, status.st_mtime_ns, owner, group)


def _kind(one: os.DirEntry[str]) -> int:
    if one.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFDIR if one.is_dir(follow_symlinks=False) else stat.S_IFREG


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# Functions, because other systems lack these flags and import this module too.
def _for_reading() -> int:
    return os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in its place must not block the server


def _for_its_status() -> int:
    return os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
