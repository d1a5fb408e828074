"""The files of torch.distributed.checkpoint: renamed when they are on the disk, with their size and SHA-256."""

import contextlib
import hashlib
import io
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Union

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter

from .disk import renamed_when_written, sync

Facts = Dict[str, Dict[str, Any]]
_Path = Union[str, "os.PathLike[str]"]

#: torch's file with the plan of a checkpoint, and its name while ``METADATA`` is that of the checkpoint to be replaced.
METADATA, NEW_METADATA = ".metadata", ".metadata.new"


class WrittenFiles(FileSystem):
    """Notes each written file in ``facts``: its ``bytes`` and ``sha256`` by its name.

    Args:
        metadata: the name of torch's ``METADATA``.
    """

    def __init__(self, metadata: str = METADATA) -> None:
        self.facts: Facts = {}
        self.metadata = metadata

    def concat_path(self, path: _Path, suffix: str) -> _Path:
        return super().concat_path(path, self.metadata if suffix == METADATA else suffix)

    @contextlib.contextmanager
    def create_stream(self, path: _Path, mode: str) -> Iterator[io.IOBase]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        target = Path(path)
        with renamed_when_written(target) as partial, _HashedFile(partial) as file:
            yield file
        self.facts[target.name] = {"bytes": file.size, "sha256": file.digest.hexdigest()}

    def rename(self, path: _Path, new_path: _Path) -> None:
        super().rename(path, new_path)
        sync(Path(new_path).parent)
        self.facts[Path(new_path).name] = self.facts.pop(Path(path).name)


class _HashedFile(io.RawIOBase):
    """A file that is only written in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb")
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = self._file.write(data)
        self.digest.update(data)
        self.size += size
        return size

    def seek(self, offset: int, whence: int = 0) -> int:
        """The position, for which the base class asks so: this file has no other."""
        if (offset, whence) != (0, 1):
            raise io.UnsupportedOperation("seek")
        return self.size

    def close(self) -> None:
        """Sync the file to the disk first: torch's writer closes it itself."""
        if not self._file.closed:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
        super().close()


def writer_at(path: Path) -> FileSystemWriter:
    """torch's writer, one file a rank, with these files. It does not sync them itself, since it does so too early."""
    writer = FileSystemWriter(path, sync_files=False)
    writer.fs = WrittenFiles()
    return writer


def reader_at(path: Path, metadata: str) -> FileSystemReader:
    reader = FileSystemReader(path)
    reader.fs = WrittenFiles(metadata)
    return reader
