"""Which local cloud is meant: that of a folder, unless the environment names another."""

from __future__ import annotations

import os
from pathlib import Path

from smdp_launch.jobs.history import state_folder
from smdp_launch.localcloud.variables import STATE


def local_cloud_folder() -> Path:
    """Where the state of the local cloud lies that jobs of this machine run in.

    Raises:
        EnvironmentProblem: it is the current folder's, which cannot be written to.
    """
    named = os.environ.get(STATE)
    return Path(named).expanduser() if named else state_folder() / "local"


def user_cloud_folder() -> Path:
    """Of the one local cloud that folders may share."""
    from platformdirs import user_state_path

    return user_state_path("smdp-launch") / "local"
