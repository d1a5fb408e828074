"""Downloads one S3 object to one file, which appears only when it is complete.

Until then its bytes are in ``.NAME.ETAG.part`` beside it. A new download of the same object continues at the end of
that file, after a lost connection, a Ctrl-C or a power failure; it makes no request if the file is complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.file_lock import LockTimeout, locked
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import as_service_problem, call_with_retries
from smdp_launch.jobs.transfer.results import Result

_BLOCK = 1 << 20
#: The download fails when so many connections in a row break without a byte.
_ATTEMPTS = 5

#: Called with the size of the file.
Progress = Callable[[int], None]


def fetch(clients: Clients, result: Result, path: Path, progress: Progress) -> Path:
    """Download the object to a part file beside ``path`` and return its path. `publish` renames it.

    Raises:
        ServiceProblem: S3 refused, did not answer, or the object has changed.
        EnvironmentProblem: the file cannot be written, or the credentials have expired.
        Refused: another process is downloading it.
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
    """Rename a complete part file to its final name. It replaces an existing file.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    try:
        part.replace(path)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


@contextmanager
def _part(path: Path, result: Result) -> Iterator[tuple[BinaryIO, Path]]:
    """Open the part file at its end. Delete part files of other versions of the object."""
    version = "".join(char for char in result.etag if char.isalnum())
    part = path.with_name(f".{path.name}.{version}.part")
    any_version = re.compile(rf"\.{re.escape(path.name)}\.[^.]*\.part")
    for other in path.parent.iterdir():
        if other != part and any_version.fullmatch(other.name):
            other.unlink()
    with part.open("ab") as file:
        try:
            with locked(file.fileno(), part):
                if file.tell() > result.size:
                    file.seek(0)
                    file.truncate()
                yield file, part
        except LockTimeout:
            raise Refused(f"another process is downloading {path}") from None


def _fill(clients: Clients, result: Result, file: BinaryIO, progress: Progress) -> None:
    """Append the missing bytes. After a broken connection, continue at the same byte."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    failed = 0
    progress(file.tell())
    while file.tell() < result.size:
        before = file.tell()
        with as_service_problem(f"{result.where} cannot be downloaded"):
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

    def request() -> Mapping[str, Any]:  # a retry may have another client, with new credentials
        where = result.where
        answer: Mapping[str, Any] = clients.s3.get_object(
            Bucket=where.bucket, Key=where.key, IfMatch=result.etag, **rest
        )
        return answer

    answer = call_with_retries(clients, f"{result.where} cannot be downloaded", request, is_transfer=True)
    if start and not answer.get("ContentRange", "").startswith(f"bytes {start}-"):
        file.seek(0)
        file.truncate()  # the answer is the whole object, not the rest
    # Not `with body`: that returns the raw response, which does not check the length.
    with closing(answer["Body"]) as body:
        try:
            while block := body.read(_BLOCK):
                file.write(block)
                progress(file.tell())
        except FlexibleChecksumError:
            file.truncate(0)  # S3 checks only whole objects: any of the bytes may be wrong
            raise
