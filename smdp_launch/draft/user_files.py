"""Files that a command writes for its user: each is written whole, or stays as it was, where it can be replaced."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.private_files import write_bytes

#: The folder may be one that the user cannot write, or the file a mount point, as a single file of `docker -v` is.
_NOT_REPLACED = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS})


def write_file(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Replace ``path`` in one step. A link stays a link. A device or a pipe, such as ``/dev/stdout``, is written to; so
    is a file that can be written but not replaced.

    Args:
        mode: of the file, without the bits of the umask and those that the replaced file does not have.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        if path.exists():
            path.open("ab").close()  # a write-protected file is not replaced
            mode &= path.stat().st_mode
        try:
            write_bytes(path.resolve(), data, mode)
        except OSError as error:
            if error.errno not in _NOT_REPLACED or not path.exists():
                raise
            with suppress(PermissionError):  # only its owner may change the mode
                path.chmod(mode)
            path.write_bytes(data)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def create_file(path: Path, content: str) -> None:
    """As `write_file`, but a file that exists is not replaced.

    Raises:
        FileExistsError: it exists, or another process has created it meanwhile.
        EnvironmentProblem: it cannot be written.
    """
    try:
        path.open("xb").close()
    except FileExistsError:
        raise
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error
    try:
        write_file(path, content)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextmanager
def removed_on_failure(paths: Iterable[Path]) -> Iterator[None]:
    """If the context fails, remove those of these files and folders that it has created."""
    new = [one for one in paths if not os.path.lexists(one)]
    try:
        yield
    except BaseException:
        for one in new:
            shutil.rmtree(one, ignore_errors=True)
            with suppress(OSError):
                one.unlink()
        raise
