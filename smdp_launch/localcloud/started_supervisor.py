"""How a supervisor begins: with the folder that the server has created for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from smdp_launch.localcloud.environment import isolate
from smdp_launch.localcloud.layout import SupervisedFolder
from smdp_launch.localcloud.processes import has_open

_Folder = TypeVar("_Folder", bound=SupervisedFolder)


def own_folder(kind: Callable[[Path], _Folder]) -> _Folder:
    """The folder that the command line names, once it has that name. Applies the environment of a server.

    The server starts a supervisor before it names the folder. The command line has the path, and the reading end of a
    pipe that the server closes; the supervisor inherits the locked `supervisor.lock` in its folder. A running server of
    an older version gives the path only, of a folder that has its name.

    Exits with 0 where the server was killed before: the next server removes the unnamed folder.

    Args:
        kind: makes the folder from its path.
    """
    isolate()
    folder = kind(Path(sys.argv[1]))
    if len(sys.argv) > 2 and not _is_named(folder, int(sys.argv[2])):
        sys.exit(0)
    return folder


def _is_named(folder: SupervisedFolder, named: int) -> bool:
    """Wait until the server has closed its end of the pipe, itself or by its end: has the folder got its name?"""
    os.read(named, 1)  # nothing is written
    os.close(named)
    return has_open(os.getpid(), folder.lock)
