"""Unpacks model.tar.gz, which a client has written, so its content is untrusted.

As on SageMaker, an archive with links is refused. So is one with devices, with names that lead out of the folder, and
one that would fill the disk.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import cast

_BLOCK = 1024 * 1024
#: Bytes of content that are always allowed, and how many times larger than the archive more content may be. Weights
#: compress to a half; an archive far beyond that is meant to fill the disk.
_ALWAYS_ALLOWED = 2 * 1024**3
_MOST_TIMES_LARGER = 100
_MOST_MEMBERS = 500_000


class ArchiveError(Exception):
    """The archive is damaged, or has content that is refused."""


def unpack(archive: Path, folder: Path, check: Callable[[], None]) -> None:
    """Unpack a tar file, gzipped or plain, into an empty folder.

    `check` is called before each block of the content, and may raise to end the work. Raises ArchiveError, and OSError
    where the folder cannot be written.
    """
    limit = max(_ALWAYS_ALLOWED, _MOST_TIMES_LARGER * archive.stat().st_size)
    try:
        with archive.open("rb") as raw:
            is_gzipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            content = gzip.GzipFile(fileobj=raw) if is_gzipped else raw
            with tarfile.open(fileobj=cast("io.BufferedReader", content), mode="r|") as tar:
                _Unpacker(folder, limit, check).run(tar)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise ArchiveError(f"it is not a whole tar file: {error}") from error


class _Unpacker:
    def __init__(self, folder: Path, limit: int, check: Callable[[], None]) -> None:
        self._folder = folder
        self._room = limit
        self._check = check

    def run(self, tar: tarfile.TarFile) -> None:
        for number, member in enumerate(tar):
            if number >= _MOST_MEMBERS:
                raise ArchiveError(f"it has more than {_MOST_MEMBERS} files and folders")
            self._check()
            self._create(tar, member)
            tar.members = []  # type: ignore[attr-defined] # or tarfile keeps all headers in memory

    def _create(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise ArchiveError(f"{member.name!r} leads out of the model's folder")
        if member.issym() or member.islnk():
            raise ArchiveError(f"{member.name!r} is a link; pack the file that it points to")
        target = self._folder / path
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif member.isreg():
            self._write(tar, member, target)
        else:
            raise ArchiveError(f"{member.name!r} is not a file or folder")

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
        self._room -= member.size  # also that of a sparse file, which has few bytes in the archive
        if self._room < 0:
            raise ArchiveError(f"it unpacks to more than allowed for its size, at {member.name!r}")
        if member.size > shutil.disk_usage(self._folder).free:
            raise ArchiveError(f"{member.name!r} needs {member.size} bytes, more than are free on the disk")
        content = tar.extractfile(member)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while content is not None and (block := content.read(_BLOCK)):
                self._check()
                file.write(block)
        target.chmod((member.mode & 0o755) | 0o644)
