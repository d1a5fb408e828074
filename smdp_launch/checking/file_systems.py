"""Which folders of this machine stand for the file systems of a job's channels, in the local cloud that is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from smdp_launch.jobfile.load import Loaded
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.source.scan import LocalData, look_at_folder


class LocalFileSystem(NamedTuple):
    """``mount_name``: with it paths in FSx begin; EFS has none, nor has this machine."""

    folder: Path
    mount_name: str | None = None


#: Those that the local cloud has, by the key of the channel's source and their id.
LocalFileSystems = Mapping[tuple[Literal["fsx", "efs"], str], LocalFileSystem]


def mounted(
    loaded: Loaded, spec: JobSpec, known: LocalFileSystems
) -> Iterator[tuple[str, FsxChannel | EfsChannel, LocalFileSystem]]:
    """The channels whose file systems the local cloud knows."""
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
    """What the local cloud would find at the channel's path."""
    # FSx is mounted under the first part of the path.
    inside = PurePosixPath(channel.path).parts[1 if system.mount_name is None else 2 :]
    folder = system.folder.joinpath(*inside)
    if ".." in inside:
        return LocalData(folder, True, problem="a path in a file system has no `..`")
    found = look_at_folder(folder, may_be_empty=channel.access == "rw")
    if found.exists and found.problem is None and not folder.resolve().is_relative_to(system.folder.resolve()):
        return LocalData(folder, True, problem=f"a link in it leads out of {system.folder}")
    return found
