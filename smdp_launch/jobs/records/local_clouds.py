"""Which local cloud is meant: that of a folder, unless the environment names another."""

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
    """Where the state of the local cloud lies that jobs of this machine run in.

    Raises:
        EnvironmentProblem: it is the current folder's, which cannot be written to, or a home folder that nobody has.
    """
    return named_folder() or state_folder() / "local"


def named_folder() -> Path | None:
    """The one that the environment names.

    Raises:
        EnvironmentProblem: a home folder that nobody has.
    """
    named = os.environ.get(STATE)
    try:
        return Path(named).expanduser() if named else None
    except RuntimeError as error:
        raise EnvironmentProblem(f"{STATE} is {named}, and nobody has that home folder: name another") from error


def file_systems() -> LocalFileSystems:
    """Those for which folders stand there: this machine's own, and what its account's file says. Nothing is made.

    Raises:
        EnvironmentProblem: that file has a mistake, its folder is a home folder that nobody has, or another user may
            have prepared it.
    """
    from smdp_launch.catalog.local_cloud import THIS_MACHINE
    from smdp_launch.checking.file_systems import LocalFileSystem
    from smdp_launch.localcloud.client import file_systems as local
    from smdp_launch.localcloud.client.connect import LocalCloudError

    folder = named_folder() or (existing_state_folder() or Path(STATE_FOLDER).absolute()) / "local"
    if folder.exists():
        with private_state():
            check_folder(folder)
    machine = LocalFileSystem(Path("/"))
    found: dict[tuple[Literal["fsx", "efs"], str], LocalFileSystem] = {
        ("fsx", THIS_MACHINE): machine,
        ("efs", THIS_MACHINE): machine,
    }
    try:
        for one in local.file_systems(folder):
            found[one.kind, one.id] = LocalFileSystem(one.folder, one.mount_name)
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error
    return found


def user_cloud_folder() -> Path:
    """Of the one local cloud that folders may share."""
    from platformdirs import user_state_path

    return user_state_path("smdp-launch") / "local"
