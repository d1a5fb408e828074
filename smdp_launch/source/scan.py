"""Reads local folders and returns plain values, so that the rules and the plan do no I/O."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from smdp_launch.source.ignore import IGNORE_FILE, Ignored, IgnoreProblem, IgnoreRules, read_ignore_file
from smdp_launch.source.suspicious import Suspicious, suspicion
from smdp_launch.source.walk import Entry, cannot_open, entries, file_problem

#: The folder to which `smdp-launch download` writes the artifacts of jobs, in a folder per job.
RESULTS_FOLDER = "smdp-results"

#: Names that are never part of the source archive.
IGNORED = frozenset(
    {
        *(".git", ".hg", ".svn", ".smdp", ".venv", "venv", "__pycache__", ".ipynb_checkpoints", ".mypy_cache"),
        *(".pytest_cache", ".ruff_cache", ".tox", "node_modules", ".DS_Store", ".idea", ".vscode", IGNORE_FILE),
        RESULTS_FOLDER,
    }
)

# Top-level folders to which experiment trackers write. A folder of that name may also be a Python package.
_TRACKERS = frozenset({"wandb", "lightning_logs", "mlruns"})

#: Bytes, 100 MB: the default of ``script.source_limit_mb``.
DEFAULT_LIMIT = 100_000_000

#: With a limit, listing stops after this many files: the folder is probably a home folder or a data set.
MAX_FILES = 20_000

# Entries of a data folder that are checked if no local run reads it.
_MOST_CHECKED = 200

# Excluded files are counted up to this number; they may be a data set.
_MAX_COUNTED = 10_000
_MAX_NAMED = 100
_NO_FILES = "it contains no files"
_NOT_UTF8 = "its name is not UTF-8"


class SourceFile(NamedTuple):
    """One file to upload. ``name`` is relative to the folder, with forward slashes."""

    name: str
    path: Path
    size: int
    executable: bool


class SourceTree(NamedTuple):
    """The source folder as it is on disk.

    Args:
        exists: it is a folder that can be listed.
        files: in the order of their names.
        empty_folders: names of the folders in which nothing is, not even an excluded file.
        unreadable: names of entries that cannot be packed, with the reason.
        sha256: of the names, modes and contents; empty if the folder is too large.
        ignored: what the ignore file excludes. The folders of tools (``IGNORED``) are not counted.
        ignore_problems: lines of the ignore file that are not valid patterns.
        suspicious: files to upload that seem to contain secrets.
        limit_bytes: the largest size allowed; None for any size.
        complete: all files are listed; else there are more than ``MAX_FILES`` files and empty folders.
        outputs: excluded folders, to which the script writes when it runs outside a container.
    """

    folder: Path
    exists: bool
    files: tuple[SourceFile, ...] = ()
    empty_folders: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    sha256: str = ""
    ignored: Ignored = Ignored()
    ignore_problems: tuple[IgnoreProblem, ...] = ()
    suspicious: tuple[Suspicious, ...] = ()
    limit_bytes: int | None = None
    complete: bool = True
    outputs: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes before compression."""
        return sum(one.size for one in self.files)

    @property
    def too_large(self) -> bool:
        return not self.complete or (self.limit_bytes is not None and self.size > self.limit_bytes)

    def largest(self, count: int = 5) -> list[SourceFile]:
        """The largest files first."""
        return sorted(self.files, key=lambda one: (-one.size, one.name))[:count]

    def file(self, name: str) -> SourceFile | None:
        return next((one for one in self.files if one.name == name), None)


class LocalData(NamedTuple):
    """The local data of one channel.

    Args:
        size: bytes.
        problem: why it cannot be read; None if everything checked is readable.
        complete: everything was checked, so ``files`` and ``size`` are exact.
    """

    path: Path
    exists: bool
    files: int = 0
    size: int = 0
    problem: str | None = None
    complete: bool = True


def normal_name(entry: str) -> str:
    """A relative path as the archive names it: ``./a//b.py`` is ``a/b.py``. ``..`` stays as it is."""
    return str(PurePosixPath(entry))


def scan_source(folder: Path, limit_bytes: int | None = None, outputs: frozenset[str] = frozenset()) -> SourceTree:
    """List the source folder, and hash it unless it is larger than ``limit_bytes``.

    Links are followed: the files and folders that they point to are uploaded.

    Args:
        outputs: folders to exclude, relative to ``folder`` (``source.script.outputs.output_folders``).
    """
    if not folder.is_dir():
        return SourceTree(folder, exists=False)
    rules = read_ignore_file(folder)
    exclusions = _Exclusions(folder, rules, outputs)
    most = None if limit_bytes is None else MAX_FILES + 1
    listed = list(islice(entries(folder, exclusions.excludes), most))
    files, unreadable = _readable(listed[: most and MAX_FILES])
    empty_folders = sorted(one for one in exclusions.folders if _is_empty(folder / one))
    not_utf8 = [one for one in empty_folders if not _is_utf8(one)]
    tree = SourceTree(
        folder,
        exists=True,
        files=tuple(files),
        empty_folders=tuple(one for one in empty_folders if one not in not_utf8),
        unreadable=(*unreadable, *((_shown(one), _NOT_UTF8) for one in not_utf8)),
        ignored=exclusions.ignored(),
        ignore_problems=rules.problems,
        suspicious=tuple(one for file in files if (one := suspicion(file.name, file.path)) is not None),
        limit_bytes=limit_bytes,
        complete=most is None or len(listed) + len(empty_folders) < most,
        outputs=tuple(exclusions.outputs),
    )
    return tree if tree.too_large else _hashed(tree)


def scan_data(path: Path) -> LocalData:
    """Count the files below ``path`` (or ``path`` itself) and check that each can be opened."""
    try:
        if not path.exists():
            return LocalData(path, exists=False)
    except OSError as error:
        return LocalData(path, True, problem=error.strerror or str(error))
    files = [Entry("", path, None)] if path.is_file() else list(entries(path))
    size = 0
    for name, file, problem in files:
        reason = problem or cannot_open(file)
        if reason is not None:
            return LocalData(path, True, len(files), size, f"{name or path.name}: {reason}")
        size += file.stat().st_size
    return LocalData(path, True, len(files), size, None if files else _NO_FILES)


def sample_data(path: Path) -> LocalData:
    """Check the first entries below ``path``. Checking all of them may take minutes."""
    try:
        if not path.exists():
            return LocalData(path, exists=False)
        if path.is_file():
            return scan_data(path)
        checked = list(islice(_unsorted_entries(path), _MOST_CHECKED))
        files = [Path(one.path) for one in checked if not one.is_dir()]
        for file in files:
            reason = file_problem(file) or cannot_open(file)
            if reason is not None:
                return LocalData(path, True, problem=f"{file.relative_to(path)}: {reason}", complete=False)
        size = sum(one.stat().st_size for one in files)
    except OSError as error:
        return LocalData(path, True, problem=error.strerror or str(error))
    complete = len(checked) < _MOST_CHECKED
    problem = _NO_FILES if complete and not files else None
    return LocalData(path, True, len(files), size, problem, complete)


def _unsorted_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below ``folder``, in the order of the disk, read lazily."""
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            for one in listing:
                yield one
                if one.is_dir():
                    waiting.append(one.path)


def check_folder(path: Path, *, may_be_empty: bool) -> LocalData:
    """Check that the folder, which simulates a file system, can be listed and has a name in UTF-8.

    Its files are not read.
    """
    try:
        if not path.exists():
            return LocalData(path, exists=False)
        str(path.resolve()).encode()
        with os.scandir(path) as listing:
            is_empty = next(listing, None) is None
    except UnicodeEncodeError:
        return LocalData(path, True, problem="its name is not UTF-8")
    except OSError as error:
        return LocalData(path, True, problem=error.strerror or str(error))
    return LocalData(path, True, problem="it is empty" if is_empty and not may_be_empty else None)


def data_files(path: Path) -> list[tuple[str, Path]]:
    """The files below ``path`` with their names in a channel; a single file keeps its name."""
    if path.is_file():
        return [(path.name, path)]
    return sorted((name, file) for name, file, problem in entries(path) if problem is None)


class _Exclusions:
    """Excludes what tools write and what the ignore file names, and records the latter, and the other folders."""

    def __init__(self, folder: Path, rules: IgnoreRules, outputs: frozenset[str]) -> None:
        self._folder = folder
        self._known_outputs = outputs
        self.outputs: list[str] = []
        self.folders: list[str] = []
        self._rules = rules
        self._ignored: list[str] = []

    def excludes(self, name: str, is_folder: bool) -> bool:
        if _is_of_a_tool(name.rsplit("/", 1)[-1]):
            return True
        if is_folder and name in self._known_outputs:
            self.outputs.append(name)
            return True
        if is_folder and name in _TRACKERS and not (self._folder / name / "__init__.py").exists():
            return True
        if not self._rules.excludes(name, is_folder):
            if is_folder:
                self.folders.append(name)
            return False
        self._ignored.append(f"{name}/" if is_folder else name)
        return True

    def ignored(self) -> Ignored:
        files = size = 0
        for path in islice(self._paths(), _MAX_COUNTED + 1):
            if files == _MAX_COUNTED:
                return Ignored(files, size, tuple(self._ignored[:_MAX_NAMED]), complete=False)
            files += 1
            size += _size(path)
        return Ignored(files, size, tuple(self._ignored[:_MAX_NAMED]))

    def _paths(self) -> Iterator[Path]:
        for name in self._ignored:
            path = self._folder / name
            if name.endswith("/"):
                yield from (one.path for one in entries(path))
            else:
                yield path


def _shown(name: str) -> str:
    """The name as printable text. Bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", errors="backslashreplace").decode()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_of_a_tool(name: str) -> bool:
    return name in IGNORED or name.endswith((".pyc", ".pyo"))


def _readable(listed: Sequence[Entry]) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """The files that can be read, and the names of the others with the reason; both sorted."""
    files: list[SourceFile] = []
    unreadable: list[tuple[str, str]] = []
    for name, path, problem in sorted(listed):
        if problem is not None:
            unreadable.append((_shown(name), problem))
            continue
        try:
            files.append(_source_file(name, path))
        except OSError as error:
            unreadable.append((_shown(name), error.strerror or str(error)))
    return files, unreadable


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as listing:
            return next(listing, None) is None
    except OSError:
        return False


def _hashed(tree: SourceTree) -> SourceTree:
    """The tree with its digest. Files that cannot be read are moved to ``unreadable``."""
    digest = hashlib.sha256("".join(f"{name}/\n" for name in tree.empty_folders).encode())
    files: list[SourceFile] = []
    unreadable = list(tree.unreadable)
    for file in tree.files:
        try:
            content = _sha256(file.path)
        except OSError as error:
            unreadable.append((file.name, error.strerror or str(error)))
            continue
        files.append(file)
        digest.update(f"{file.name}\0{int(file.executable)}\0{content}\n".encode())
    return tree._replace(files=tuple(files), unreadable=tuple(sorted(unreadable)), sha256=digest.hexdigest())


def _source_file(name: str, path: Path) -> SourceFile:
    if not _is_utf8(name):
        raise OSError(errno.EILSEQ, _NOT_UTF8)
    status = path.stat()
    return SourceFile(name, path, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
