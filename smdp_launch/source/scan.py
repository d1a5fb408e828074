"""Looks at folders on this disk, and hands on plain values: the rules and the plan do no I/O of their own."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

#: Never part of the source archive: made by tools, or not for the hosts.
IGNORED = frozenset(
    {".git", ".hg", ".svn", ".smdp", ".venv", "venv", "__pycache__", ".ipynb_checkpoints", ".mypy_cache"}
    | {".pytest_cache", ".ruff_cache", ".tox", "node_modules", ".DS_Store", ".idea", ".vscode"}
)


@dataclass(frozen=True)
class SourceFile:
    """One file that will travel. ``name`` is relative to the folder, with forward slashes."""

    name: str
    path: Path
    size: int
    executable: bool


@dataclass(frozen=True)
class SourceTree:
    """The source folder as it is on disk.

    Args:
        exists: it is a folder that can be listed.
        files: in the order of their names.
        unreadable: names of entries that cannot be packed, with the reason.
        sha256: of the names, modes and contents.
    """

    folder: Path
    exists: bool
    files: tuple[SourceFile, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    sha256: str = ""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    def file(self, name: str) -> SourceFile | None:
        return next((one for one in self.files if one.name == name), None)


@dataclass(frozen=True)
class LocalData:
    """Data on this machine for one channel. ``problem`` is None when all of it can be read."""

    path: Path
    exists: bool
    files: int = 0
    size: int = 0
    problem: str | None = None


def normal_name(entry: str) -> str:
    """A relative path as the archive names it: ``./a//b.py`` is ``a/b.py``. ``..`` stays as it is."""
    return str(PurePosixPath(entry))


def scan_source(folder: Path) -> SourceTree:
    """List and hash the source folder. Links to files and folders are followed, and travel as what they point to."""
    if not folder.is_dir():
        return SourceTree(folder, exists=False)
    files: list[SourceFile] = []
    unreadable: list[tuple[str, str]] = []
    digest = hashlib.sha256()
    for name, path, problem in sorted(_entries(folder, _is_clutter)):
        if problem is not None:
            unreadable.append((name, problem))
            continue
        try:
            file = _source_file(name, path)
            content = _sha256(path)
        except OSError as error:
            unreadable.append((name, error.strerror or str(error)))
            continue
        files.append(file)
        digest.update(f"{name}\0{int(file.executable)}\0{content}\n".encode())
    return SourceTree(folder, True, tuple(files), tuple(unreadable), digest.hexdigest())


def scan_data(path: Path) -> LocalData:
    """Count the files below ``path`` (or ``path`` itself) and see that each can be opened."""
    if not path.exists():
        return LocalData(path, exists=False)
    found = [("", path, None)] if path.is_file() else list(_entries(path, _nothing))
    size = 0
    for name, file, problem in found:
        unusable = problem or _cannot_open(file)
        if unusable is not None:
            return LocalData(path, True, len(found), size, f"{name or path.name}: {unusable}")
        size += file.stat().st_size
    return LocalData(path, True, len(found), size, None if found else "there is no file in it")


def data_files(path: Path) -> list[tuple[str, Path]]:
    """The files below ``path`` with the names they have in a channel; a single file keeps its own name."""
    if path.is_file():
        return [(path.name, path)]
    return sorted((name, file) for name, file, problem in _entries(path, _nothing) if problem is None)


def _is_clutter(name: str) -> bool:
    return name in IGNORED or name.endswith((".pyc", ".pyo"))


def _nothing(_name: str) -> bool:
    return False  # data is data: all of it travels


def _entries(folder: Path, skip: Callable[[str], bool]) -> Iterator[tuple[str, Path, str | None]]:
    """Name, path and problem of each entry below ``folder`` that is no folder; what cannot be packed has a problem."""
    problems: list[OSError] = []
    real_parents: dict[str, frozenset[str]] = {str(folder): frozenset({os.path.realpath(folder)})}
    for root, folders, names in os.walk(folder, followlinks=True, onerror=problems.append):
        relative = Path(root).relative_to(folder)
        seen = real_parents[root]
        folders[:] = sorted(one for one in folders if not skip(one))
        for one in list(folders):
            real = os.path.realpath(Path(root) / one)
            if real in seen:  # a link to a folder it stands in
                folders.remove(one)
                yield (relative / one).as_posix(), Path(root) / one, "a link to a folder that holds it"
            real_parents[str(Path(root) / one)] = seen | {real}
        for name in names:
            if not skip(name):
                path = Path(root) / name
                yield (relative / name).as_posix(), path, _file_problem(path)
    for error in problems:
        path = Path(str(error.filename))
        yield path.relative_to(folder).as_posix(), path, error.strerror or str(error)


def _file_problem(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(mode) else "neither a file nor a folder"


def _cannot_open(path: Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _source_file(name: str, path: Path) -> SourceFile:
    status = path.stat()
    return SourceFile(name, path, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
