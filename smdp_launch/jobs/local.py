"""Which local cloud is meant: that of a folder, unless the environment names another."""

from __future__ import annotations

import os
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.history import STATE_FOLDER, state_folder
from smdp_launch.localcloud.variables import STATE


def local_cloud_folder() -> Path:
    """Where the state of the local cloud lies that jobs of this machine run in.

    Raises:
        EnvironmentProblem: it is the current folder's, which cannot be written to.
    """
    return _named() or state_folder() / "local"


def _named() -> Path | None:
    named = os.environ.get(STATE)
    return Path(named).expanduser() if named else None


def file_systems() -> dict[str, Path]:
    """The folders that stand for file systems there, by their id, as its account's file says. Nothing is made.

    Raises:
        EnvironmentProblem: that file has a mistake.
    """
    from smdp_launch.localcloud.account import AccountFile
    from smdp_launch.localcloud.errors import ServiceError

    account = AccountFile(_named() or Path(STATE_FOLDER, "local").absolute())
    try:
        known = account.read()
    except ServiceError as error:
        raise EnvironmentProblem(error.message) from error
    folders = {name: one.folder for name, one in known.fsx.items()}
    folders |= {name: one.folder for name, one in known.efs.items()}
    return {name: account.place(folder) for name, folder in folders.items() if folder is not None}


def user_cloud_folder() -> Path:
    """Of the one local cloud that folders may share."""
    from platformdirs import user_state_path

    return user_state_path("smdp-launch") / "local"
