"""The source archive. The same folder always gives the same bytes."""

from __future__ import annotations

import gzip
import tarfile
from typing import IO

from smdp_launch.source.scan import SourceFile, SourceTree

#: 2000-01-01, of every entry. Programs such as setuptools and zip refuse files from before 1980.
MODIFIED = 946_684_800


def write_archive(tree: SourceTree, file: IO[bytes]) -> None:
    """Write ``tree`` as a gzipped tar to ``file``.

    Raises:
        OSError: a file vanished or changed its size since the scan.
    """
    # Names, times and owners would differ between machines, so the headers have none of the machine's.
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in tree.empty_folders:
            tar.addfile(folder_header(name))
        for one in tree.files:
            with one.path.open("rb") as content:
                tar.addfile(file_header(one, one.name), content)


def folder_header(name: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.mtime = tarfile.DIRTYPE, 0o755, MODIFIED
    return header


def file_header(file: SourceFile, name: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mtime = file.size, MODIFIED
    header.mode = 0o755 if file.executable else 0o644
    return header
