"""One object from S3 to one file, which appears whole or not at all.

Until then its bytes lie beside it in ``.NAME.ETAG.part``. Whoever fetches the same object again goes on where that
ends, be it after a lost connection, a Ctrl-C or a power cut, and asks nothing if it is whole.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import told
from smdp_launch.jobs.transfer.results import Result

_BLOCK = 1 << 20
#: Connections that may break one after the other without a byte between them.
_ATTEMPTS = 5

#: Told of the bytes of the file that are there.
Progress = Callable[[int], None]


def fetch(clients: Clients, result: Result, path: Path, progress: Progress) -> Path:
    """The whole object beside ``path``, under the name of a part: `publish` it when all that belong together are there.

    Raises:
        ServiceProblem: S3 refused, did not answer, or the object has changed.
        EnvironmentProblem: the file cannot be written.
        Refused: somebody else is fetching it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _part(path, result) as (file, part):
            _fill(clients, result, file, progress)
            file.flush()
            os.fsync(file.fileno())
            return part
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def publish(part: Path, path: Path) -> None:
    """Give a whole part its name, over what is there.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    try:
        part.replace(path)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


@contextmanager
def _part(path: Path, result: Result) -> Iterator[tuple[BinaryIO, Path]]:
    """What is there of the object, opened at its end; leftovers of other versions go."""
    version = "".join(char for char in result.etag if char.isalnum())
    part = path.with_name(f".{path.name}.{version}.part")
    any_version = re.compile(rf"\.{re.escape(path.name)}\.[^.]*\.part")
    for other in path.parent.iterdir():
        if other != part and any_version.fullmatch(other.name):
            other.unlink()
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"somebody else is fetching {path}") from None
        if file.tell() > result.size:
            file.seek(0)
            file.truncate()
        yield file, part


def _fill(clients: Clients, result: Result, file: BinaryIO, progress: Progress) -> None:
    """Append what is missing; a connection that breaks is made anew from there."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    failed = 0
    progress(file.tell())
    while file.tell() < result.size:
        before = file.tell()
        with told(f"{result.where} cannot be fetched"):
            try:
                _append(clients, result, file, progress)
            except (HTTPClientError, IncompleteReadError):
                failed = 0 if file.tell() > before else failed + 1
                if failed >= _ATTEMPTS:
                    raise


def _append(clients: Clients, result: Result, file: BinaryIO, progress: Progress) -> None:
    from botocore.exceptions import FlexibleChecksumError

    start = file.tell()
    rest = {"Range": f"bytes={start}-"} if start else {}
    answer = clients.s3.get_object(Bucket=result.where.bucket, Key=result.where.key, IfMatch=result.etag, **rest)
    if start and not answer.get("ContentRange", "").startswith(f"bytes {start}-"):
        file.seek(0)
        file.truncate()  # the whole object came, not the rest
    # Not `with body`: that is the raw response, whose end nobody compares with its length.
    with closing(answer["Body"]) as body:
        try:
            while block := body.read(_BLOCK):
                file.write(block)
                progress(file.tell())
        except FlexibleChecksumError:
            file.truncate(0)  # asked for at the end: nothing of it can be trusted
            raise
