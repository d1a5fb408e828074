"""Unpacks a source archive that may have been made by anybody.

Every member is checked before it is made: nothing absolute, no `..`, no device. Files and folders are made first and
symbolic links last, and a link whose place lies behind another link is refused, so that nothing can be written through
a link. Each link is followed once they all stand; one that leads out of the folder ends the job. An archive that breaks
a rule is refused, not repaired: a job whose files lie elsewhere than its author thinks is worse than one that does not
start.
"""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from smdp_entrypoint.errors import SourceError


def unpack(archive: Path, folder: Path) -> int:
    """Unpack a tar, gzipped or plain, into `folder` and return the number of files. Raises SourceError."""
    try:
        with archive.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
        with tarfile.open(archive, "r:gz" if gzipped else "r:") as tar:
            return _Unpacker(tar, folder.resolve()).run()
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise SourceError(f"The source archive cannot be unpacked into {folder}: {error}.") from error


class _Unpacker:
    def __init__(self, tar: tarfile.TarFile, folder: Path) -> None:
        self.tar = tar
        self.folder = folder
        self.files: set[PurePosixPath] = set()
        self.links: dict[PurePosixPath, str] = {}

    def run(self) -> int:
        for member in self.tar:
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
            raise SourceError(f"The source archive holds {member.name!r}, which is neither file, folder nor link.")

    def _make_file(self, member: tarfile.TarInfo, path: PurePosixPath) -> None:
        if path in self.links:
            raise SourceError(f"The source archive holds {member.name!r} twice: as a link and then as a file.")
        content = self.tar.extractfile(member)
        if content is None:  # mypy: only members that hold no data give None
            return
        target = self._free_place(path)
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)
        # No set-uid bits, and always readable by us.
        target.chmod((member.mode & 0o755) | 0o644)
        self.files.add(path)

    def _make_copy(self, member: tarfile.TarInfo, path: PurePosixPath) -> None:
        original = _inside(member.linkname, member.name)
        if original not in self.files:
            raise SourceError(
                f"The source archive's {member.name!r} is a hard link to {member.linkname!r}, "
                "which is no earlier file of it."
            )
        if original != path:
            shutil.copy2(self.folder / original, self._free_place(path))
        self.files.add(path)

    def _free_place(self, path: PurePosixPath) -> Path:
        """The place of a new file; a later file or link of the same name takes the place of an earlier file."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        return target

    def _make_links(self) -> None:
        for path in self.links:
            if any(parent in self.links for parent in path.parents):
                raise SourceError(f"The source archive's link {str(path)!r} would be made through another link of it.")
        for path, target in self.links.items():
            self._free_place(path).symlink_to(target)
        for path, target in self.links.items():
            if not self._stays_inside(path, target):
                self._remove_links()
                raise SourceError(
                    f"The source archive's link {str(path)!r} leads to {target!r}, outside the code folder."
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
    """`name` as a path below the folder; `member` is the entry to blame."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"The source archive's {member!r} would lie outside the code folder.")
    return path
