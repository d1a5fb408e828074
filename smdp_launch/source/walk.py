"""The entries below a folder, with links followed, and why an entry cannot be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from smdp_launch.source.file_names import name_below

#: Whether to skip an entry, given its name relative to the folder and whether it is a folder.
Skip = Callable[[str, bool], bool]


class Entry(NamedTuple):
    """``name`` is relative to the folder, with forward slashes; ``problem`` is None for a usable file."""

    name: str
    path: Path
    problem: str | None


def entries(folder: Path, skip: Skip = lambda _name, _is_folder: False) -> Iterator[Entry]:
    """The files below ``folder``, and the folders that cannot be listed or that link to a parent folder."""
    problems: list[OSError] = []
    real_parents: dict[str, frozenset[str]] = {str(folder): frozenset({os.path.realpath(folder)})}
    for root, folders, names in os.walk(folder, followlinks=True, onerror=problems.append):
        inside = _inside(root, folder)
        parents = real_parents[root]
        folders[:] = sorted(one for one in folders if not skip(inside + one, True))
        for one in list(folders):
            path = Path(root) / one
            real = os.path.realpath(path)
            if real in parents:
                folders.remove(one)
                yield Entry(inside + one, path, "a link to a folder that contains it")
            real_parents[os.path.join(root, one)] = parents | {real}  # noqa: PTH118 - the text that os.walk yields
        for name in sorted(names):
            if not skip(inside + name, False):
                path = Path(root) / name
                yield Entry(inside + name, path, file_problem(path))
    for error in problems:
        path = Path(str(error.filename))
        yield Entry(name_below(path, folder), path, error.strerror or str(error))


def cannot_open(path: Path) -> str | None:
    """The reason why the file cannot be read; None if it can."""
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _inside(root: str, folder: Path) -> str:
    relative = name_below(Path(root), folder)
    return "" if relative == "." else f"{relative}/"


def file_problem(path: Path) -> str | None:
    """The reason why it is not a usable file; None if it is. It is not opened: opening a pipe would block."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(mode) else "neither a file nor a folder"
