"""The current folder, which another process may have deleted."""

from __future__ import annotations

import os

from smdp_launch.errors import EnvironmentProblem

DELETED = "the current directory does not exist any more; change to another"


def require_current_folder() -> None:
    """Call this before a search of the folder's jobs, which finds none in a deleted folder.

    Raises:
        EnvironmentProblem: the folder was deleted.
    """
    if is_deleted():
        raise EnvironmentProblem(DELETED)


def is_deleted() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib would build a Path of the result
    except FileNotFoundError:
        return True
    return False
