"""Downloads one S3 object to one file, which appears only when it is complete.

Until then its bytes are in ``.NAME.ETAG.part`` beside it. A new download of the same object continues at the end of
that file, after a lost connection or a Ctrl-C; it makes no request if the file is complete. After a power failure, the
last bytes of the file may be zeros that were never written: a download continues at a byte that is surely on disk. The
number of these bytes is in ``.NAME.ETAG.synced``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Interrupted, Refused, ServiceProblem
from smdp_launch.file_lock import LockTimeout, locked
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import Outage, as_service_problem, call_with_retries
from smdp_launch.jobs.transfer.results import Result

_BLOCK = 1 << 20
#: The bytes are synced to the disk each time that so many more have been written.
_SYNC = 64 << 20
#: Of the name in the name of a part file, in bytes: file systems allow 255, and the tag and the suffix need the rest.
_LONGEST_NAME = 180
_LONGEST_VERSION = 64

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
            _fill(clients, result, file, part, progress)
            _sync(file)
            return part
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def publish(part: Path, path: Path) -> None:
    """Rename a complete part file to its final name. It replaces an existing file.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    try:
        _record_of(part).unlink(missing_ok=True)
        part.replace(path)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


@contextmanager
def _part(path: Path, result: Result) -> Iterator[tuple[BinaryIO, Path]]:
    """Open the part file at its end, and sync it afterwards. Delete part files of other versions of the object."""
    version = "".join(char for char in result.etag if char.isalnum())
    name, version = _shortened(path.name, _LONGEST_NAME), _shortened(version, _LONGEST_VERSION)
    part = path.with_name(f".{name}.{version}.part")
    any_version = re.compile(rf"\.{re.escape(name)}\.[^.]*\.(part|synced)")
    for other in path.parent.iterdir():
        if other not in (part, _record_of(part)) and any_version.fullmatch(other.name):
            other.unlink()
    with part.open("ab") as file:
        try:
            with locked(file.fileno(), part):
                if file.tell() > result.size:
                    _discard(file, part)
                _cut(file, _surely_on_disk(file.tell(), part))
                try:
                    yield file, part
                finally:
                    with suppress(OSError):
                        _sync(file)
                        _record_of(part).write_text(str(file.tell()), encoding="ascii")
        except LockTimeout:
            raise Refused(f"another process is downloading {path}") from None


def _shortened(name: str, most: int) -> str:
    """The name, or a digest of a name of more than ``most`` bytes."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= most else hashlib.sha256(encoded).hexdigest()


def _record_of(part: Path) -> Path:
    return part.with_suffix(".synced")


def _surely_on_disk(size: int, part: Path) -> int:
    """The number of bytes of a part file of ``size`` bytes with their real content: those at the end of the last
    download, or at the last sync of one that was killed. A block may have been written after each sync."""
    try:
        recorded = int(_record_of(part).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        recorded = 0
    if recorded > size:  # of a file that was deleted
        _record_of(part).unlink()
        recorded = 0
    return max(recorded, max(0, size - _BLOCK) // _SYNC * _SYNC)


def _discard(file: BinaryIO, part: Path) -> None:
    """Delete the content, whose record must not count for another one."""
    _record_of(part).unlink(missing_ok=True)
    file.seek(0)
    file.truncate()


def _cut(file: BinaryIO, size: int) -> None:
    if file.tell() > size:
        file.seek(size)
        file.truncate()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _fill(clients: Clients, result: Result, file: BinaryIO, part: Path, progress: Progress) -> None:
    """Append the missing bytes. After a broken connection, wait and continue at the same byte, for as long as the retry
    policy allows without a byte."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    what, outage = f"{result.where} cannot be downloaded", Outage(clients.retry_policy)
    progress(file.tell())
    while file.tell() < result.size:
        before = file.tell()
        try:
            with as_service_problem(what):
                try:
                    _append(clients, result, file, part, progress)
                except (HTTPClientError, IncompleteReadError) as error:
                    if file.tell() > before:
                        outage.record_success()
                    _wait(clients, outage, what, error)
        except ServiceProblem as problem:
            if error_kind(problem.__cause__) is not ErrorKind.TEMPORARY:
                raise
            message = f"{problem}; run the command again: it continues at byte {file.tell()}"
            raise ServiceProblem(message) from problem.__cause__


def _wait(clients: Clients, outage: Outage, what: str, error: Exception) -> None:
    """Wait for the next try. Raises ``error`` if the retries are exhausted, and Interrupted."""
    waiting = outage.record_failure(what, error)
    if outage.lasted + waiting.again_in > clients.retry_policy.total:
        raise error
    clients.on_waiting(waiting)
    if clients.interrupted.wait(waiting.again_in):
        raise Interrupted(f"{what}: interrupted after {waiting.reason}") from error


def _append(clients: Clients, result: Result, file: BinaryIO, part: Path, progress: Progress) -> None:
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
        _discard(file, part)  # the answer is the whole object, not the rest
    # Not `with body`: that returns the raw response, which does not check the length.
    with closing(answer["Body"]) as body:
        try:
            while block := body.read(_BLOCK):
                before = file.tell()
                file.write(block)
                if file.tell() // _SYNC > before // _SYNC:
                    _sync(file)
                progress(file.tell())
        except FlexibleChecksumError:
            _discard(file, part)  # S3 checks only whole objects: any of the bytes may be wrong
            raise
