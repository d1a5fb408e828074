"""The state folder of the local cloud in use: that of the current folder, unless the environment names another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import STATE_FOLDER, existing_state_folder, private_state, state_folder
from smdp_launch.localcloud.client.variables import STATE
from smdp_launch.private_files import check_folder

if TYPE_CHECKING:
    from smdp_launch.checking.file_systems import LocalFileSystem, LocalFileSystems


def local_cloud_folder() -> Path:
    """The state folder of the local cloud for local jobs.

    Raises:
        EnvironmentProblem: it is the current folder's, which cannot be written to, or a home folder of an unknown user.
    """
    return named_folder() or state_folder() / "local"


def known_cloud_folder() -> Path:
    """The same folder, for a command that only reads it: no folder is created.

    Raises:
        EnvironmentProblem: it is below the home folder of an unknown user, or another user may have prepared it.
    """
    return named_folder() or (existing_state_folder() or Path(STATE_FOLDER).absolute()) / "local"


def named_folder() -> Path | None:
    """The folder that the environment names; None without one.

    Raises:
        EnvironmentProblem: it is below the home folder of an unknown user.
    """
    named = os.environ.get(STATE)
    try:
        return Path(named).expanduser() if named else None
    except RuntimeError as error:
        raise EnvironmentProblem(f"{STATE} is {named}, and there is no such user: set it to another folder") from error


def file_systems() -> LocalFileSystems:
    """The file systems that a local folder replaces: the local machine's own, and those in the local cloud's account
    file. No folder is created.

    Raises:
        EnvironmentProblem: the account file has an error, its folder is below the home folder of an unknown user, or
            another user may have prepared it.
    """
    from smdp_launch.catalog.local_cloud import THIS_MACHINE
    from smdp_launch.checking.file_systems import LocalFileSystem
    from smdp_launch.localcloud.client import file_systems as local
    from smdp_launch.localcloud.client.connect import LocalCloudError

    folder = known_cloud_folder()
    if folder.exists():
        with private_state():
            check_folder(folder)
    machine = LocalFileSystem(Path("/"))
    replaced: dict[tuple[Literal["fsx", "efs"], str], LocalFileSystem] = {
        ("fsx", THIS_MACHINE): machine,
        ("efs", THIS_MACHINE): machine,
    }
    try:
        for one in local.file_systems(folder):
            replaced[one.kind, one.id] = LocalFileSystem(one.folder, one.mount_name)
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error
    return replaced


def user_cloud_folder() -> Path:
    """The state folder of the user's shared local cloud."""
    from platformdirs import user_state_path

    return user_state_path("smdp-launch") / "local"
