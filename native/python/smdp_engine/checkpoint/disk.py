"""Files that are either complete or absent, whenever the process is killed."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any, Iterator, Union

_DEFAULT_FOLDER = "/opt/ml/checkpoints"


def checkpoint_folder(folder: Union[str, Path, None]) -> Path:
    """The folder that the script gives, or the one that the platform synchronizes with S3."""
    return Path(folder or os.environ.get("SMDP_CHECKPOINT_DIR") or _DEFAULT_FOLDER)


def write_whole(path: Path, write: Any) -> None:
    """Write a file with ``write(partial)``, which gets a temporary path, and rename it when it is on the disk."""
    with renamed_when_written(path) as partial:
        write(partial)
        sync(partial)


@contextlib.contextmanager
def renamed_when_written(path: Path) -> Iterator[Path]:
    """A temporary path, whose file has to be on the disk at the end. After an error it is removed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    result = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            result.update(block)
    return result.hexdigest()
