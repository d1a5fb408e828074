"""model.tar.gz and output.tar.gz to a folder. A script made them, so they may hold anything.

Files and folders are made below a new folder, and nothing else is: a name that leads out of it, a link or a device is
refused before anything of the archive appears where the person looks.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from smdp_launch.errors import EnvironmentProblem, Refused

_BLOCK = 1 << 20


def unpack(archive: Path, folder: Path) -> None:
    """Unpack ``archive`` to ``folder``, in place of what is there.

    Raises:
        Refused: it holds a link, a device, or a name that leads out of the folder or stands twice.
        EnvironmentProblem: it is no whole archive, or the folder cannot be written.
    """
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            made = scratch / folder.name
            made.mkdir()
            _unpack(archive, made)
            if os.path.lexists(folder):
                folder.rename(scratch / "before")
            made.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise EnvironmentProblem(f"{archive} cannot be unpacked to {folder}: {error}") from error


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            path = folder / _name(archive, member)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                _write(archive, tar, member, path)


def _name(archive: Path, member: tarfile.TarInfo) -> PurePosixPath:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\0" in member.name:
        raise Refused(f"{archive} holds {member.name!r}, which leads out of the folder: it is not unpacked")
    if not (member.isfile() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "a device or pipe"
        raise Refused(f"{archive} holds {kind}, {member.name!r}: it is not unpacked; tar itself would do it")
    return name


def _write(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise Refused(f"{archive} holds {member.name!r}, which is no file")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
    except FileExistsError:
        raise Refused(f"{archive} holds {member.name!r} twice: it is not unpacked") from None
    if member.mode & 0o100:
        path.chmod(path.stat().st_mode | 0o111)
