"""The local folders that a local cloud has in place of the file systems of a job's channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from smdp_launch.jobfile.load import Loaded
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.source.scan import LocalData, check_folder


class LocalFileSystem(NamedTuple):
    """``mount_name``: the first part of paths in FSx; None for EFS and for this machine's own file system."""

    folder: Path
    mount_name: str | None = None


#: The file systems of a local cloud, by the key of the channel's source and their ID.
LocalFileSystems = Mapping[tuple[Literal["fsx", "efs"], str], LocalFileSystem]


def mounted(
    loaded: Loaded, spec: JobSpec, known: LocalFileSystems
) -> Iterator[tuple[str, FsxChannel | EfsChannel, LocalFileSystem]]:
    """The channels whose file systems the local cloud has, each with its file system."""
    for name, channel in spec.channels.items() if loaded.has("channels") else ():
        if not isinstance(channel, FsxChannel | EfsChannel):
            continue
        kind: Literal["fsx", "efs"] = "fsx" if isinstance(channel, FsxChannel) else "efs"
        if not all(loaded.has("channels", name, one) for one in (kind, "path")):
            continue
        system = known.get((kind, channel.fsx if isinstance(channel, FsxChannel) else channel.efs))
        if system is not None:
            yield name, channel, system


def look_at_mounted(channel: FsxChannel | EfsChannel, system: LocalFileSystem) -> LocalData:
    """The data at the channel's path in the local cloud."""
    # The first part of an FSx path is the mount name.
    inside = PurePosixPath(channel.path).parts[1 if system.mount_name is None else 2 :]
    folder = system.folder.joinpath(*inside)
    if ".." in inside:
        return LocalData(folder, True, problem="a path in a file system cannot contain `..`")
    data = check_folder(folder, may_be_empty=channel.access == "rw")
    if data.exists and data.problem is None and not folder.resolve().is_relative_to(system.folder.resolve()):
        return LocalData(folder, True, problem=f"a symbolic link in the path leads out of {system.folder}")
    return data
