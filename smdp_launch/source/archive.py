"""The source archive. The same folder always gives the same bytes."""

from __future__ import annotations

import gzip
import tarfile
from typing import IO

from smdp_launch.source.scan import SourceFile, SourceTree


def write_archive(tree: SourceTree, file: IO[bytes]) -> None:
    """Write ``tree`` as a gzipped tar to ``file``.

    Raises:
        OSError: a file vanished or changed its size since the scan.
    """
    # Names, times and owners would differ between machines, so both headers omit them.
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for one in tree.files:
            with one.path.open("rb") as content:
                tar.addfile(_header(one), content)


def _header(file: SourceFile) -> tarfile.TarInfo:
    header = tarfile.TarInfo(file.name)
    header.size = file.size
    header.mode = 0o755 if file.executable else 0o644
    return header
