"""Input channels that are file systems: folders of this machine that all hosts of a job share.

Which folder stands for a file system says `account.yaml`; one is there without it, with this machine's own paths.
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
    """Raises ServiceError unless every file system that a channel names has a folder here, and its path can be in it.

    Whether the path is there is seen when the job starts.
    """
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("FileSystemDataSource")
        if source is not None:
            _place(source, account)


def _place(source: Source, account: AccountFile) -> tuple[Path, PurePosixPath]:
    """The folder that stands for a channel's file system, and the path of the channel's directory from there.

    Raises ServiceError where nothing says which folder that is, or the path cannot be in it.
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
    return account.place(str(system.folder)), _inside(name, system, path)


def _system(source: Source, account: AccountFile) -> Fsx | Efs:
    name, known = source["FileSystemId"], account.read()
    is_lustre = source["FileSystemType"] == "FSxLustre"
    system = known.fsx.get(name) if is_lustre else known.efs.get(name)
    if system is None or system.folder is None:
        entry = f"{'fsx' if is_lustre else 'efs'}: {{{name}: {{folder: FOLDER}}}}"
        raise validation(f"No folder stands for file system {name} here: name it in {account.folder / FILE}, {entry}.")
    return system


def _inside(name: str, system: Fsx | Efs, path: PurePosixPath) -> PurePosixPath:
    """The path from the file system's root; that of FSx begins with the name under which it is mounted."""
    root = PurePosixPath("/", system.mount_name if isinstance(system, Fsx) else "")
    path = PurePosixPath("/", *path.parts[1:])  # two slashes at the start are a root of their own
    if path != root and root not in path.parents:
        raise validation(f"DirectoryPath {str(path)!r} must begin with {root}, the mount name of {name}.")
    return path.relative_to(root)


def attach(
    channel: Mapping[str, Any], trees: Sequence[HostTree], account: AccountFile, *, isolated: bool
) -> list[Mount]:
    """Make a channel's folder the same one on every host: at once by a link, or, where hosts have mounts of their own
    (`isolated`), by what is returned, which they mount.

    Raises JobFailed where the folder is not there.
    """
    source = channel["DataSource"]["FileSystemDataSource"]
    places = [tree.channel(channel["ChannelName"]) for tree in trees]
    folder = _existing(source, account)
    if isolated:
        return [Mount(folder, place, source["FileSystemAccessMode"] == "ro") for place in places]
    for place in places:
        place.rmdir()
        place.symlink_to(folder)
    return []


def _existing(source: Source, account: AccountFile) -> Path:
    """The channel's folder, without a link in its path.

    A job may have left links in a file system: none leads another job to what is not in it.
    """
    name, path = source["FileSystemId"], source["DirectoryPath"]
    head = f"ClientError: Unable to mount file system: {name}, directory path: {path}."
    try:
        root, inside = _place(source, account)
    except ServiceError as error:  # the account's file has changed since the request was taken
        raise JobFailed(f"{head} {error.message}") from None
    try:
        root, folder = root.resolve(), (root / inside).resolve()
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a circle of links, a NUL
        raise JobFailed(f"{head} This machine cannot find it: {error}; name another one.") from None
    if not folder.is_relative_to(root):
        raise JobFailed(f"{head} A link in it leads out of {root}, to {folder}: name a folder in the file system.")
    if not is_folder:
        raise JobFailed(f"{head} On this machine that is {folder}, which is no folder: make it, or name another one.")
    return folder
