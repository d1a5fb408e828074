"""Downloads one stored checkpoint to a folder, from which `smdp_engine.checkpoint` loads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from smdp_launch.errors import Refused
from smdp_launch.jobs.checkpoints.marker import MARKER
from smdp_launch.jobs.checkpoints.refusals import EXISTS, TORN, UNKNOWN_STEP, refusal, torn, unknown_step
from smdp_launch.jobs.checkpoints.stored import Kind, State, StoredCheckpoint, StoredCheckpoints, StoredFile
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.transfer.fetch import fetch, publish
from smdp_launch.jobs.transfer.results import Result
from smdp_launch.source.file_names import BadNameError, checked_name

_BLOCK = 1 << 20
_NOT_FETCHED = "nothing was fetched"

#: Called repeatedly with a file and how many of its bytes have been written.
Progress = Callable[[Result, int], None]


@dataclass(frozen=True)
class Fetched:
    """Args:
    path: of the folder or file.
    files: number of files that were downloaded; those that were there with the same content are not counted.
    is_verified: whether each file has the SHA-256 with which it was saved.
    """

    checkpoint: StoredCheckpoint
    path: Path
    files: int
    size: int
    is_verified: bool


def chosen(stored: StoredCheckpoints, step: int | None) -> StoredCheckpoint:
    """The checkpoint of a step, or the newest usable one.

    Raises:
        Refused: there is none, or it is torn.
    """
    one = stored.newest if step is None else stored.of_step(step)
    if one is None and step is not None:
        raise unknown_step(stored, [step], _NOT_FETCHED)
    if one is None:
        message = "no checkpoint here can be loaded"
        raise refusal(UNKNOWN_STEP, stored.where, message, "run the job until it has saved one", _NOT_FETCHED)
    if one.state is State.TORN:
        raise Refused(_NOT_FETCHED, [torn(stored, one)])
    return one


def fetch_checkpoint(
    clients: Clients, stored: StoredCheckpoints, one: StoredCheckpoint, folder: Path, progress: Progress, force: bool
) -> Fetched:
    """Download into ``folder``. The files appear when all of them are complete and verified, the marker last.

    Args:
        force: replace existing files with another content.

    Raises:
        ServiceProblem: S3 refused, did not answer, or an object has changed.
        EnvironmentProblem: a file cannot be written.
        Refused: a file exists with another content, differs from what was saved, or has an unsafe name.
    """
    sha256 = dict(one.sha256)
    files = sorted(_files(stored, one), key=lambda file: file.name.endswith(f"/{MARKER}"))
    missing = [file for file in files if force or not _is_there(file, _path(folder, file), sha256.get(file.name))]
    parts = [(file, _part(clients, stored, file, folder, progress, sha256.get(file.name))) for file in missing]
    for file, part in parts:
        publish(part, _path(folder, file))
    is_verified = one.is_whole and bool(sha256)
    return Fetched(one, _path(folder, one), len(missing), sum(file.size for file in missing), is_verified)


def _files(stored: StoredCheckpoints, one: StoredCheckpoint) -> Iterator[StoredFile]:
    """Only the files that belong to it: beside them may be those of a save that was killed."""
    belongs = {*(name for name, _ in one.sha256), f"{one.name}/{MARKER}"} if one.kind is Kind.SHARDED else None
    yield from (file for file in one.files if belongs is None or file.name in belongs)
    if one.kind is Kind.SINGLE and stored.latest is not None and stored.latest[1] == one.name:
        yield stored.latest[0]


def _path(folder: Path, one: StoredFile | StoredCheckpoint) -> Path:
    try:
        return folder / checked_name(one.name)
    except BadNameError as error:
        raise Refused(f"the object {one.name!r} {error}: fetch it yourself with another tool") from None


def _is_there(file: StoredFile, path: Path, sha256: str | None) -> bool:
    """Whether the file is there with the same content.

    Raises:
        Refused: it is there with another one.
    """
    if not path.exists() and not path.is_symlink():
        return False
    if sha256 is None and path.name in (MARKER, "LATEST"):
        return False  # small, and it describes the other files
    if sha256 is not None and path.is_file() and path.stat().st_size == file.size and _digest(path) == sha256:
        return True
    message = "it exists already, with another content" if sha256 is not None else "it exists already"
    raise refusal(EXISTS, str(path), message, "name another folder with --to, or replace it with --force", _NOT_FETCHED)


def _part(
    clients: Clients, stored: StoredCheckpoints, file: StoredFile, folder: Path, progress: Progress, sha256: str | None
) -> Path:
    """Download and verify one file."""
    path, where = _path(folder, file), stored.object(file.name)
    result = Result(checked_name(file.name), where, file.size, file.etag)
    part = fetch(clients, result, path, partial(progress, result))
    if sha256 is not None and _digest(part) != sha256:
        with suppress(OSError):
            part.unlink()
        help_ = "fetch another step: the stored file is damaged"
        raise refusal(TORN, str(where), "it differs from what was saved", help_, _NOT_FETCHED)
    return part


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
