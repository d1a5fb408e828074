"""The model's archive with the serving script in it. The same archive and folder always give the same bytes.

The archive that a training job made is read and written as a stream: a model may be larger than the memory. Its
content is untrusted, and is copied without being unpacked.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from typing import IO

from smdp_launch.source.archive import MODIFIED, file_header, folder_header
from smdp_launch.source.file_names import BadNameError, checked_name
from smdp_launch.source.scan import SourceTree

#: The folder of the archive in which serving containers look for the script.
CODE = "code"
#: Weights hardly compress: a higher level takes several times as long for less than 1 % of the size.
_LEVEL = 1
_COPIED = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE)
_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)


class UnsafeModelError(ValueError):
    """The archive has a name that leads out of it, or an entry that is neither a file, a folder nor a link."""


def pack_model(trained: IO[bytes], tree: SourceTree, packed: IO[bytes], progress: Callable[[], None]) -> None:
    """Copy the archive ``trained`` to ``packed``, with the files of ``tree`` as its folder ``code``.

    As in the SageMaker SDK, the new folder replaces one that the archive has.

    Args:
        trained: gzipped tar, read once from its start.
        progress: called before each entry; may raise.

    Raises:
        UnsafeModelError: an entry cannot be copied safely.
        tarfile.TarError, EOFError, OSError, zlib.error: ``trained`` is damaged, or a file vanished since the scan.
    """
    # Names, times and owners would differ between machines, so the headers have none of the machine's.
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as target,
        tarfile.open(fileobj=trained, mode="r|gz") as source,
    ):
        for member in source:
            progress()
            _copy(source, member, target)
            source.members = []  # type: ignore[attr-defined] # or tarfile keeps all headers in memory
        for name in tree.empty_folders:
            target.addfile(folder_header(f"{CODE}/{name}"))
        for one in tree.files:
            progress()
            with one.path.open("rb") as content:
                target.addfile(file_header(one, f"{CODE}/{one.name}"), content)


def _copy(source: tarfile.TarFile, member: tarfile.TarInfo, target: tarfile.TarFile) -> None:
    name = _name(member)
    if name in ("", CODE) or name.startswith(f"{CODE}/"):
        return
    header = tarfile.TarInfo(name)
    header.mtime = MODIFIED
    header.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    if member.isdir():
        header.type = tarfile.DIRTYPE
        target.addfile(header)
    elif member.type in _LINKS:
        header.type, header.linkname = member.type, member.linkname
        target.addfile(header)
    elif member.type in _COPIED:
        header.size = member.size
        target.addfile(header, source.extractfile(member))
    else:
        raise UnsafeModelError(f"{member.name!r} is a device or a pipe")


def _name(member: tarfile.TarInfo) -> str:
    """The name without ``./`` at its start."""
    plain = member.name
    while plain.startswith("./"):
        plain = plain[2:].lstrip("/")
    if plain in ("", "."):
        return ""
    try:
        return str(checked_name(plain))
    except BadNameError as error:
        raise UnsafeModelError(f"the name {member.name!r} {error}") from None
