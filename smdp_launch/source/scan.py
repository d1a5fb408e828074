"""Looks at folders on this disk, and hands on plain values: the rules and the plan do no I/O of their own."""

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

#: Where `smdp-launch download` puts what jobs left, in folders of their names.
RESULTS_FOLDER = "smdp-results"

#: Never part of the source archive: made by tools, or not for the hosts.
IGNORED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".smdp",
        RESULTS_FOLDER,
        ".venv",
        "venv",
        "__pycache__",
        ".ipynb_checkpoints",
        ".mypy_cache",
    }
    | {".pytest_cache", ".ruff_cache", ".tox", "node_modules", ".DS_Store", ".idea", ".vscode", IGNORE_FILE}
)

# Folders at the top that tools for tracking runs fill; one that is a package is none.
_TRACKERS = frozenset({"wandb", "lightning_logs", "mlruns"})

#: Bytes: 100 MB, what a job file allows that says nothing else.
DEFAULT_LIMIT = 100_000_000

#: Where a limit holds, listing stops here: somebody named a home folder or a data set.
MAX_FILES = 20_000

# Entries of a data folder that are looked at where no local run will read it.
_GLANCED = 200

# What the ignore file leaves out is counted up to these; it may be a data set.
_MAX_COUNTED = 10_000
_MAX_NAMED = 100


class SourceFile(NamedTuple):
    """One file that will travel. ``name`` is relative to the folder, with forward slashes."""

    name: str
    path: Path
    size: int
    executable: bool


class SourceTree(NamedTuple):
    """The source folder as it is on disk.

    Args:
        exists: it is a folder that can be listed.
        files: in the order of their names.
        unreadable: names of entries that cannot be packed, with the reason.
        sha256: of the names, modes and contents; empty if the folder is too large, for then nothing is read.
        ignored: what the ignore file left out. The tools' own folders (``IGNORED``) are not counted.
        ignore_problems: lines of the ignore file that say nothing.
        suspicious: files that will travel and seem to hold secrets.
        limit_bytes: the size the folder may have, None for any.
        complete: all of it was listed; else there are more than ``MAX_FILES`` files.
        outputs: folders that were left out, since the script writes them when it is run by hand.
    """

    folder: Path
    exists: bool
    files: tuple[SourceFile, ...] = ()
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
    """Data on this machine for one channel.

    Args:
        problem: why it cannot be read; None when all that was looked at can.
        complete: all of it was looked at, so ``files`` and ``size`` are those of the whole.
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

    Links to files and folders are followed, and travel as what they point to.

    Args:
        outputs: folders to leave out, relative to ``folder`` (``source.outputs.output_folders``).
    """
    if not folder.is_dir():
        return SourceTree(folder, exists=False)
    rules = read_ignore_file(folder)
    sieve = _Sieve(folder, rules, outputs)
    most = None if limit_bytes is None else MAX_FILES + 1
    found = list(islice(entries(folder, sieve.skips), most))
    files, unreadable = _sorted_out(found[: most and MAX_FILES])
    tree = SourceTree(
        folder,
        exists=True,
        files=tuple(files),
        unreadable=tuple(unreadable),
        ignored=sieve.ignored(),
        ignore_problems=rules.problems,
        suspicious=tuple(one for file in files if (one := suspicion(file.name, file.path)) is not None),
        limit_bytes=limit_bytes,
        complete=most is None or len(found) < most,
        outputs=tuple(sieve.outputs),
    )
    return tree if tree.too_large else _hashed(tree)


def scan_data(path: Path) -> LocalData:
    """Count the files below ``path`` (or ``path`` itself) and see that each can be opened."""
    try:
        if not path.exists():
            return LocalData(path, exists=False)
    except OSError as error:
        return LocalData(path, True, problem=error.strerror or str(error))
    found = [Entry("", path, None)] if path.is_file() else list(entries(path))
    size = 0
    for name, file, problem in found:
        unusable = problem or cannot_open(file)
        if unusable is not None:
            return LocalData(path, True, len(found), size, f"{name or path.name}: {unusable}")
        size += file.stat().st_size
    return LocalData(path, True, len(found), size, None if found else "there is no file in it")


def glance_at_data(path: Path) -> LocalData:
    """See whether there is data below ``path`` without going through it, which may take minutes: of a folder, the
    first few hundred entries."""
    try:
        if not path.exists():
            return LocalData(path, exists=False)
        if path.is_file():
            return scan_data(path)
        found = list(islice(_walked(path), _GLANCED))
        files = [Path(one.path) for one in found if not one.is_dir()]
        for file in files:
            unusable = file_problem(file) or cannot_open(file)
            if unusable is not None:
                return LocalData(path, True, problem=f"{file.relative_to(path)}: {unusable}", complete=False)
        size = sum(one.stat().st_size for one in files)
    except OSError as error:
        return LocalData(path, True, problem=error.strerror or str(error))
    complete = len(found) < _GLANCED
    problem = "there is no file in it" if complete and not files else None
    return LocalData(path, True, len(files), size, problem, complete)


def _walked(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below ``folder`` in no order, read from the disk as it is asked for."""
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            for one in listing:
                yield one
                if one.is_dir():
                    waiting.append(one.path)


def look_at_folder(path: Path, *, may_be_empty: bool) -> LocalData:
    """See that a folder can be listed and told to a service. It plays a file system, which nobody reads through
    beforehand."""
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
    return LocalData(path, True, problem="there is nothing in it" if is_empty and not may_be_empty else None)


def data_files(path: Path) -> list[tuple[str, Path]]:
    """The files below ``path`` with the names they have in a channel; a single file keeps its own name."""
    if path.is_file():
        return [(path.name, path)]
    return sorted((name, file) for name, file, problem in entries(path) if problem is None)


class _Sieve:
    """Leaves out tools' clutter and what the ignore file names, and remembers the latter."""

    def __init__(self, folder: Path, rules: IgnoreRules, outputs: frozenset[str]) -> None:
        self._folder = folder
        self._known_outputs = outputs
        self.outputs: list[str] = []
        self._rules = rules
        self._left_out: list[str] = []

    def skips(self, name: str, is_folder: bool) -> bool:
        if _is_clutter(name.rsplit("/", 1)[-1]):
            return True
        if is_folder and name in self._known_outputs:
            self.outputs.append(name)
            return True
        if is_folder and name in _TRACKERS and not (self._folder / name / "__init__.py").exists():
            return True
        if not self._rules.leaves_out(name, is_folder):
            return False
        self._left_out.append(f"{name}/" if is_folder else name)
        return True

    def ignored(self) -> Ignored:
        files = size = 0
        for path in islice(self._paths(), _MAX_COUNTED + 1):
            if files == _MAX_COUNTED:
                return Ignored(files, size, tuple(self._left_out[:_MAX_NAMED]), complete=False)
            files += 1
            size += _size(path)
        return Ignored(files, size, tuple(self._left_out[:_MAX_NAMED]))

    def _paths(self) -> Iterator[Path]:
        for name in self._left_out:
            path = self._folder / name
            if name.endswith("/"):
                yield from (one.path for one in entries(path))
            else:
                yield path


def _shown(name: str) -> str:
    """The name as text that can be printed, whatever its bytes."""
    return name.encode("utf-8", errors="backslashreplace").decode()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_clutter(name: str) -> bool:
    return name in IGNORED or name.endswith((".pyc", ".pyo"))


def _sorted_out(found: Sequence[Entry]) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    files: list[SourceFile] = []
    unreadable: list[tuple[str, str]] = []
    for name, path, problem in sorted(found):
        if problem is not None:
            unreadable.append((_shown(name), problem))
            continue
        try:
            files.append(_source_file(name, path))
        except OSError as error:
            unreadable.append((_shown(name), error.strerror or str(error)))
    return files, unreadable


def _hashed(tree: SourceTree) -> SourceTree:
    """The tree with its digest; files that cannot be read are no longer among its files."""
    digest = hashlib.sha256()
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
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not UTF-8") from None
    status = path.stat()
    return SourceFile(name, path, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
