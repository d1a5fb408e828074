"""The file systems of a local cloud's account, and their folders on this machine."""

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
    """A file system with a folder. ``mount_name`` is None for EFS."""

    kind: Literal["fsx", "efs"]
    id: str
    folder: Path
    mount_name: str | None = None


def file_systems(state: Path) -> Iterator[FileSystem]:
    """The file systems of the local cloud in ``state``. Creates nothing.

    Raises:
        LocalCloudError: ``account.yaml`` has an error.
    """
    account = AccountFile(state)
    try:
        found = account.read()
        for name, lustre in found.fsx.items():
            if lustre.folder is not None:
                yield FileSystem("fsx", name, account.resolve(lustre.folder), lustre.mount_name)
        for name, nfs in found.efs.items():
            if nfs.folder is not None:
                yield FileSystem("efs", name, account.resolve(nfs.folder))
    except ServiceError as error:
        raise LocalCloudError(error.message) from error
