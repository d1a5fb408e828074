"""Input channels that are file systems: folders of this machine that all hosts of a job share.

`account.yaml` names the folder of each file system. `THIS_MACHINE` needs no entry: it is this machine's root folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.localcloud.account import FILE, AccountFile, Efs, Fsx
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.isolation.namespaces import Mount
from smdp_launch.localcloud.runtime.outcome import JobFailed
from smdp_launch.localcloud.runtime.tree import HostTree

Source = Mapping[str, Any]


def check(request: Mapping[str, Any], account: AccountFile) -> None:
    """Raises ServiceError unless every file system that a channel names has a folder, and the path can be inside it.

    Whether the path exists is checked when the job starts.
    """
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is not None:
            _location(source, account)


def _location(source: Source, account: AccountFile) -> tuple[Path, PurePosixPath]:
    """The folder of a channel's file system, and the path of the channel's directory inside it.

    Raises ServiceError where `account.yaml` names no folder, or the path cannot be inside it.
    """
    name, path = source["FileSystemId"], PurePosixPath(source["DirectoryPath"])
    if not path.is_absolute() or ".." in path.parts:
        raise validation(f"DirectoryPath {str(path)!r} of file system {name} must begin with / and have no `..`.")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise validation(f"DirectoryPath {str(path)!r} of file system {name} is not Unicode.") from None
    if name == THIS_MACHINE:
        return Path("/"), PurePosixPath(*path.parts[1:])
    system = _system(source, account)
    return account.resolve(str(system.folder)), _inside(name, system, path)


def _system(source: Source, account: AccountFile) -> Fsx | Efs:
    name, known = source["FileSystemId"], account.read()
    is_lustre = source["FileSystemType"] == "FSxLustre"
    system = known.fsx.get(name) if is_lustre else known.efs.get(name)
    if system is None or system.folder is None:
        entry = f"{'fsx' if is_lustre else 'efs'}: {{{name}: {{folder: FOLDER}}}}"
        raise validation(f"File system {name} has no local folder: name one in {account.folder / FILE}: {entry}.")
    return system


def _inside(name: str, system: Fsx | Efs, path: PurePosixPath) -> PurePosixPath:
    """The path from the file system's root. A path in FSx begins with the file system's mount name."""
    root = PurePosixPath("/", system.mount_name if isinstance(system, Fsx) else "")
    path = PurePosixPath("/", *path.parts[1:])  # pathlib treats two slashes at the start as another root
    if path != root and root not in path.parents:
        raise validation(f"DirectoryPath {str(path)!r} must begin with {root}, the mount name of {name}.")
    return path.relative_to(root)


def attach(
    channel: Mapping[str, Any], trees: Sequence[HostTree], account: AccountFile, *, isolated: bool
) -> list[Mount]:
    """Give every host the channel's folder. Raises JobFailed where the folder does not exist.

    Returns:
        Where hosts have mounts of their own (`isolated`), the mounts that they make. Otherwise nothing: the channel's
        folder is a link already.
    """
    source = channel["DataSource"]["FileSystemDataSource"]
    places = [tree.channel(channel["ChannelName"]) for tree in trees]
    folder = existing(source, account)
    if isolated:
        return [Mount(folder, place, source["FileSystemAccessMode"] == "ro") for place in places]
    for place in places:
        place.rmdir()
        place.symlink_to(folder)
    return []


def existing(source: Source, account: AccountFile) -> Path:
    """The channel's folder, without a link in its path. Raises JobFailed where a link leads out of the file system.

    An earlier job may have left such a link.
    """
    name, path = source["FileSystemId"], source["DirectoryPath"]
    head = f"ClientError: Unable to mount file system: {name}, directory path: {path}."
    try:
        root, inside = _location(source, account)
    except ServiceError as error:  # `account.yaml` has changed since the request was accepted
        raise JobFailed(f"{head} {error.message}") from None
    try:
        root, folder = root.resolve(), (root / inside).resolve()
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a circle of links, a NUL
        raise JobFailed(f"{head} Cannot find it locally: {error}. Name another path.") from None
    if not folder.is_relative_to(root):
        raise JobFailed(f"{head} A link in it leads out of {root}, to {folder}: name a folder in the file system.")
    if not is_folder:
        raise JobFailed(f"{head} Locally that is {folder}, which is not a folder: create it, or name another path.")
    return folder
