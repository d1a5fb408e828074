"""Unpacks an untrusted source archive.

Every entry is checked before it is created: no absolute path, no `..`, no device. Files and folders are created before
symbolic links, and a link below another link is refused, so no file can be written through a link. After all links are
created, each is resolved; a link to a place outside the folder ends the job. An archive that breaks a rule is refused
and not repaired: files in unexpected places are worse than a job that does not start. Its unpacked files are removed,
which leaves disk space for the failure file.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Iterator, cast

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.fetch.metered import Metered

# Source code compresses to about a tenth; a large archive far beyond that ratio is meant to fill the disk.
_ALWAYS_ALLOWED = 2 * 1024**3  # bytes of content
_MOST_TIMES_LARGER = 100
_MOST_MEMBERS = 500_000
_DEADLINE_S = 15 * 60.0
_SHOWN = 40  # bytes of a file that is not an archive


def unpack(archive: Path, folder: Path, source: str = "") -> int:
    """Unpack a tar file, gzipped or not, into `folder` and return the number of files. `source` is the archive's
    address, unless it is its path. Raises SourceError."""
    try:
        limit = max(_ALWAYS_ALLOWED, _MOST_TIMES_LARGER * archive.stat().st_size)
        with _content(archive, limit) as content, _open(content, archive, source) as tar:
            return _Unpacker(tar, folder.resolve(), limit).run()
    except SourceError:
        _empty(folder)
        raise
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        _empty(folder)
        raise SourceError(f"The source archive cannot be unpacked into {folder}: {error}.") from error


@contextlib.contextmanager
def _content(archive: Path, limit: int) -> Iterator[IO[bytes]]:
    """The uncompressed tar file, of which at most `limit` bytes can be read."""
    with archive.open("rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with contextlib.ExitStack() as stack:
            content = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file))) if is_gzipped else file
            yield cast("IO[bytes]", Metered(content, limit, _DEADLINE_S))


def _open(content: IO[bytes], archive: Path, source: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=content, mode="r:")
    except tarfile.ReadError as error:
        with _content(archive, _SHOWN) as again:
            start = again.read(_SHOWN)
        raise SourceError(f"{source or archive} is not a tar.gz archive: its content starts with {start!r}.") from error


def _empty(folder: Path) -> None:
    """Remove the folder's contents, not the folder, which may be a mount point."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()


class _Unpacker:
    def __init__(self, tar: tarfile.TarFile, folder: Path, limit: int) -> None:
        self.tar = tar
        self.room = limit
        self.folder = folder
        self.files: set[PurePosixPath] = set()
        self.links: dict[PurePosixPath, str] = {}

    def run(self) -> int:
        for number, member in enumerate(self.tar):
            if number >= _MOST_MEMBERS:
                raise SourceError(f"The source archive contains more than {_MOST_MEMBERS} files and folders.")
            self.tar.members = []  # type: ignore[attr-defined] # tarfile would store them all
            path = _inside(member.name, member.name)
            if path.parts:
                self._make(member, path)
        self._make_links()
        return len(self.files)

    def _make(self, member: tarfile.TarInfo, path: PurePosixPath) -> None:
        if member.isdir():
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        elif member.isreg():
            self._make_file(member, path)
        elif member.issym():
            self.links[path] = member.linkname
        elif member.islnk():
            self._make_copy(member, path)
        else:
            raise SourceError(f"The source archive contains {member.name!r}, which is not a file, folder or link.")

    def _make_file(self, member: tarfile.TarInfo, path: PurePosixPath) -> None:
        if path in self.links:
            raise SourceError(f"The source archive contains {member.name!r} twice: as a link and as a file.")
        self._take_room(member.name, member.size)
        content = self.tar.extractfile(member)
        if content is None:  # for mypy: only members without data give None
            return
        target = self._free_place(path)
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)
        # No set-uid bits, and always readable by the entrypoint.
        target.chmod((member.mode & 0o755) | 0o644)
        self.files.add(path)

    def _take_room(self, name: str, size: int) -> None:
        """Account for a file's size: sparse files and hard links take more space on disk than in the archive."""
        self.room -= size
        if self.room < 0:
            raise SourceError(f"The source archive unpacks to more than allowed for its size, at {name!r}.")
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise SourceError(
                f"The source archive's {name!r} needs {size} bytes, but only {free} are free for {self.folder}."
            )

    def _make_copy(self, member: tarfile.TarInfo, path: PurePosixPath) -> None:
        original = _inside(member.linkname, member.name)
        if original not in self.files:
            raise SourceError(
                f"The source archive's {member.name!r} is a hard link to {member.linkname!r}, "
                "which is not an earlier file of the archive."
            )
        if original != path:
            self._take_room(member.name, (self.folder / original).stat().st_size)
            shutil.copy2(self.folder / original, self._free_place(path))
        self.files.add(path)

    def _free_place(self, path: PurePosixPath) -> Path:
        """The path of a new file; a later file or link replaces an earlier file of the same name."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        return target

    def _make_links(self) -> None:
        for path in self.links:
            if any(parent in self.links for parent in path.parents):
                raise SourceError(f"The source archive's link {str(path)!r} is inside another link of the archive.")
        for path, target in self.links.items():
            self._free_place(path).symlink_to(target)
        for path, target in self.links.items():
            if not self._stays_inside(path, target):
                self._remove_links()
                raise SourceError(
                    f"The source archive's link {str(path)!r} points to {target!r}, outside the code folder."
                )

    def _stays_inside(self, path: PurePosixPath, target: str) -> bool:
        if PurePosixPath(target).is_absolute():
            return False
        try:
            return (
                self.folder in (self.folder / path).resolve().parents or (self.folder / path).resolve() == self.folder
            )
        except (OSError, RuntimeError):  # a loop of links
            return False

    def _remove_links(self) -> None:
        for path in self.links:
            with contextlib.suppress(OSError):
                (self.folder / path).unlink()


def _inside(name: str, member: str) -> PurePosixPath:
    """`name` as a path below the folder; an error message names the entry `member`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"The source archive's {member!r} would be unpacked outside the code folder.")
    return path
