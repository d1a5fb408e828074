"""Unpacks model.tar.gz and output.tar.gz to a folder. A script wrote them, so their content is untrusted.

Only files, folders and links below a new folder are created. A name or a link that leads out of it, or a device, is
refused before any file appears in the final folder. So is an archive that would fill the disk: a few bytes of it can
encode any number of files, a sparse file of any size, or headers of any length.

A hard link becomes a copy of an earlier file. Symbolic links are created after all files, and none below another one,
so no file can be written through a link. Their targets are checked by name: no part may lead out of the folder, or
through another link.
"""

from __future__ import annotations

import gzip
import math
import os
import shutil
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, cast

from smdp_launch.disk import is_full, why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.file_lock import LockTimeout, locked
from smdp_launch.source.file_names import BadNameError, checked_name
from smdp_launch.units import size

_BLOCK = 1 << 20
#: Bytes of content: enough for a model and its optimizer state. A larger archive needs limits=False.
MOST_BYTES = 100 * 10**9
#: How many times larger than the archive the content may be. Weights compress to a half, logs to a tenth.
MOST_TIMES_LARGER = 100
#: Bytes of content that are always allowed, however small the archive is.
ALWAYS_ALLOWED = 2 * 10**9
#: Files and folders.
MOST_MEMBERS = 500_000
#: Symbolic links.
MOST_LINKS = 10_000
_MOST_TARGET = 1024  # characters of a link's target


def unpack(archive: Path, folder: Path, *, limits: bool = True) -> None:
    """Unpack ``archive``, a tar file, gzipped or plain, to ``folder``. It replaces an existing folder.

    Args:
        limits: refuse more than MOST_BYTES of content, MOST_MEMBERS, or MOST_TIMES_LARGER the archive's bytes.

    Raises:
        Refused: the archive exceeds a limit, or has a device, a name or a link that leads out of the folder, or a name
            twice; or another process is unpacking to the folder.
        EnvironmentProblem: the archive is damaged, has more bytes than are free on the disk, or the folder cannot be
            written.
    """
    try:
        with _scratch_beside(folder) as scratch:
            unpacked = scratch / folder.name
            unpacked.mkdir()
            _Unpacker(archive, unpacked, limits).run()
            if os.path.lexists(folder):
                folder.rename(scratch / "before")
            unpacked.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OSError) as error:
        reason = why(error, folder) if isinstance(error, OSError) and is_full(error) else error
        raise EnvironmentProblem(f"{archive} cannot be unpacked to {folder}: {reason}") from error


@contextmanager
def _scratch_beside(folder: Path) -> Iterator[Path]:
    """A new folder, which is deleted at the end. Its name is always the same, so that a process that was killed leaves
    no other one than that which the next process deletes."""
    scratch = folder.with_name(f".{folder.name}.unpacking")
    lock = scratch.with_name(f"{scratch.name}.lock")
    try:
        with lock.open("ab") as file, locked(file.fileno(), scratch):
            if os.fstat(file.fileno()).st_nlink == 0:  # deleted since it was opened: another process may have a new one
                raise LockTimeout
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(mode=0o700)
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
                with suppress(PermissionError):  # Windows deletes no open file
                    lock.unlink()
    except LockTimeout:
        raise Refused(f"another process is unpacking to {folder}") from None


class _Unpacker:
    def __init__(self, archive: Path, folder: Path, limits: bool) -> None:
        self._archive = archive
        self._folder = folder
        packed = archive.stat().st_size
        self._most = min(MOST_BYTES, max(ALWAYS_ALLOWED, MOST_TIMES_LARGER * packed)) if limits else math.inf
        self._most_members = MOST_MEMBERS if limits else math.inf
        self._free = shutil.disk_usage(folder).free
        self._bytes = 0  # of content, according to the headers so far
        self._links: list[tuple[PurePosixPath, str]] = []

    def run(self) -> None:
        with _content(self._archive) as content:
            bounded = cast("IO[bytes]", _Bounded(content, self._check_read))
            with tarfile.open(fileobj=bounded, mode="r:") as tar:
                for number, member in enumerate(tar, 1):
                    self._check_member(number, member)
                    self._create(tar, member)
                    tar.members = []  # type: ignore[attr-defined] # or tarfile keeps all headers in memory
        self._create_links()

    def _create(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _name(self._archive, member)
        path = self._folder / name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            self._links.append((name, member.linkname))
            if len(self._links) > MOST_LINKS:
                raise Refused(f"{self._archive} has more than {MOST_LINKS} symbolic links; use tar to unpack it")
        elif member.islnk():
            self._copy(member, path)
        else:
            _write(self._archive, tar, member, path)

    def _copy(self, member: tarfile.TarInfo, path: Path) -> None:
        try:
            original = self._folder / checked_name(member.linkname)
        except BadNameError as error:
            raise self._bad_link(member.name, member.linkname, str(error)) from None
        if not original.is_file():
            raise self._bad_link(member.name, member.linkname, "is no earlier file of it")
        self._count(original.stat().st_size)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise _twice(self._archive, member.name)
        shutil.copy(original, path)

    def _create_links(self) -> None:
        links = {_folded(str(name)) for name, _ in self._links}
        for name, target in self._links:
            if not links.isdisjoint(_folded(str(one)) for one in name.parents):
                raise self._bad_link(str(name), target, "is below another link")
            wrong = _wrong_target(name, target, links)
            if wrong:
                raise self._bad_link(str(name), target, wrong)
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.symlink_to(target)
            except FileExistsError:
                raise _twice(self._archive, str(name)) from None

    def _bad_link(self, name: str, target: str, why: str) -> Refused:
        return Refused(
            f"{self._archive} contains the link {name!r} to {target!r}, which {why}: it is not unpacked; use tar to "
            "unpack it"
        )

    def _check_member(self, number: int, member: tarfile.TarInfo) -> None:
        """Called before the member is written."""
        if number > self._most_members:
            raise self._refusal(f"has more than {MOST_MEMBERS} files and folders")
        if member.size < 0:
            raise tarfile.ReadError(f"{member.name!r} has a size below 0")
        self._count(member.size)

    def _count(self, count: int) -> None:
        """Called before so many bytes of content are written."""
        self._bytes += count
        if self._bytes > self._most:
            raise self._refusal(f"unpacks to {size(self._bytes)} or more; the limit is {size(int(self._most))}")
        if self._bytes > self._free:
            raise EnvironmentProblem(
                f"{self._archive} unpacks to {size(self._bytes)} or more, and only {size(self._free)} are free in "
                f"{self._folder.parent.parent}: free space there, or select another disk with --folder"
            )

    def _check_read(self, position: int, length: int) -> None:
        if not 0 <= length <= _BLOCK:
            raise Refused(f"{self._archive} has a header of {size(length)}: it is not unpacked")
        # The position includes headers, which are small beside the content.
        if position > self._most + ALWAYS_ALLOWED:
            raise self._refusal(f"has more than {size(int(self._most))}")

    def _refusal(self, reason: str) -> Refused:
        packed = size(self._archive.stat().st_size)
        return Refused(
            f"{self._archive} ({packed}) {reason}: it is not unpacked; if you trust the job, --no-limits --force "
            "(in Python limits=False, force=True) unpacks it without limits"
        )


@contextmanager
def _content(archive: Path) -> Iterator[IO[bytes]]:
    with archive.open("rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if is_gzipped:
            with gzip.GzipFile(fileobj=file) as content:
                yield cast("IO[bytes]", content)
        else:
            yield file


class _Bounded:
    """The file interface that `tarfile` needs. It calls ``check`` before each read with the position after the read and
    its length."""

    def __init__(self, content: IO[bytes], check: Callable[[int, int], None]) -> None:
        self._content = content
        self._check = check

    def tell(self) -> int:
        return self._content.tell()

    def read(self, size: int = -1) -> bytes:
        self._check(self._content.tell() + size, size)
        return self._content.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        self._check(position, 0)
        return self._content.seek(position, whence)


def _name(archive: Path, member: tarfile.TarInfo) -> PurePosixPath:
    try:
        # A member `.` is the folder itself.
        name = checked_name(member.name) if PurePosixPath(member.name).parts else PurePosixPath()
    except BadNameError as error:
        raise Refused(f"{archive} contains {member.name!r}, which {error}: it is not unpacked") from None
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise Refused(f"{archive} contains a device or pipe, {member.name!r}: it is not unpacked; use tar to unpack it")
    return name


def _wrong_target(name: PurePosixPath, target: str, links: set[str]) -> str:
    """Why a link may not have this target; empty if it may. ``links`` are folded names."""
    if len(target) > _MOST_TARGET:
        return f"has more than {_MOST_TARGET} characters"
    folders = [_folded(str(one)) for one in reversed(name.parents)][1:]  # without the folder itself
    parts = PurePosixPath(_folded(target)).parts
    for number, part in enumerate(parts, 1):
        if part in ("/", "//") or (part == ".." and not folders):
            return "leads out of the folder"
        if part == "..":
            folders.pop()
        else:
            folders.append(f"{folders[-1]}/{part}" if folders else part)
        if number < len(parts) and folders and folders[-1] in links:
            return "leads through another link"
    return ""


def _folded(name: str) -> str:
    """Equal for names that are one file on some file system."""
    return unicodedata.normalize("NFC", name).casefold()


def _write(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise Refused(f"{archive} contains {member.name!r}, which is no file")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
    except FileExistsError:
        raise _twice(archive, member.name) from None
    if member.mode & 0o100:
        path.chmod(path.stat().st_mode | 0o111)


def _twice(archive: Path, name: str) -> Refused:
    return Refused(f"{archive} contains {name!r} twice: it is not unpacked")
