"""Every entry below a folder, links followed, with what stands in the way of using it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

#: Says whether an entry is left out, from its name relative to the folder and whether it is a folder itself.
Skip = Callable[[str, bool], bool]


class Entry(NamedTuple):
    """``name`` is relative to the folder, with forward slashes; ``problem`` is None for a file that can be used."""

    name: str
    path: Path
    problem: str | None


def nothing(_name: str, _is_folder: bool) -> bool:
    """Skips no entry."""
    return False


def entries(folder: Path, skip: Skip = nothing) -> Iterator[Entry]:
    """The entries below ``folder`` that are no folders, and folders that cannot be listed or hold themselves."""
    problems: list[OSError] = []
    real_parents: dict[str, frozenset[str]] = {str(folder): frozenset({os.path.realpath(folder)})}
    for root, folders, names in os.walk(folder, followlinks=True, onerror=problems.append):
        inside = _inside(root, folder)
        seen = real_parents[root]
        folders[:] = sorted(one for one in folders if not skip(inside + one, True))
        for one in list(folders):
            path = Path(root) / one
            real = os.path.realpath(path)
            if real in seen:
                folders.remove(one)
                yield Entry(inside + one, path, "a link to a folder that holds it")
            real_parents[os.path.join(root, one)] = seen | {real}  # noqa: PTH118 - the text that os.walk will give
        for name in sorted(names):
            if not skip(inside + name, False):
                path = Path(root) / name
                yield Entry(inside + name, path, file_problem(path))
    for error in problems:
        path = Path(str(error.filename))
        yield Entry(path.relative_to(folder).as_posix(), path, error.strerror or str(error))


def cannot_open(path: Path) -> str | None:
    """Why the file cannot be read, else None."""
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _inside(root: str, folder: Path) -> str:
    relative = Path(root).relative_to(folder).as_posix()
    return "" if relative == "." else f"{relative}/"


def file_problem(path: Path) -> str | None:
    """Why it is no file that can be used, else None. It is not opened: that would wait for the other end of a pipe."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(mode) else "neither a file nor a folder"
