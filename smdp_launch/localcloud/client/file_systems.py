"""The file systems that a local cloud's account has, and the folders of this machine that stand for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.errors import ServiceError


@dataclass(frozen=True)
class FileSystem:
    """One with a folder. ``mount_name`` is that of FSx for Lustre; None for EFS."""

    kind: Literal["fsx", "efs"]
    id: str
    folder: Path
    mount_name: str | None = None


def file_systems(state: Path) -> Iterator[FileSystem]:
    """Those of the local cloud in ``state``. Nothing is created.

    Raises:
        LocalCloudError: ``account.yaml`` has an error, or its folder is a home folder of an unknown user.
    """
    account = AccountFile(state)
    try:
        found = account.read()
        for name, lustre in found.fsx.items():
            if lustre.folder is not None:
                yield FileSystem("fsx", name, account.place(lustre.folder), lustre.mount_name)
        for name, nfs in found.efs.items():
            if nfs.folder is not None:
                yield FileSystem("efs", name, account.place(nfs.folder))
    except ServiceError as error:
        raise LocalCloudError(error.message) from error
