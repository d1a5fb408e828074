"""The files of a job's archives."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any


def members(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(tar.getnames())


def member(name: str, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


def with_sparse_file(path: Path, size: int) -> Path:
    """An archive with one sparse file of ``size`` bytes without content."""
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member("weights", size=512, pax_headers=sparse), io.BytesIO(b"0\n".ljust(512, b"\0")))
    return path
