"""The source archive: the same folder gives the same bytes, whoever packs it and whenever."""

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
    # No name and no time in gzip's header, no owner and no time in tar's.
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
