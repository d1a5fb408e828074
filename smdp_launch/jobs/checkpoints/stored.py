"""The checkpoints at a location in S3, one by one: what each consists of, and whether it is whole.

Three kinds are known by their names:

| kind | name | written by | whole if |
|---|---|---|---|
| sharded | folder ``checkpoint-<10 digits>`` | ``ShardedCheckpoints`` | its marker names all files, with these sizes |
| single | ``checkpoint-<10 digits>.pt`` | ``Checkpoints`` | ``LATEST`` names it, with this size |
| files | every other name | any other library | unknown: nothing says what belongs to it |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from smdp_launch.jobs.checkpoints.marker import LARGEST, LATEST, MARKER, Marker, parse_latest, parse_marker
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.request.names import S3Location

_SHARDED = re.compile(r"checkpoint-(\d{10,18})")
_SINGLE = re.compile(r"checkpoint-(\d{10,18})\.pt")
#: Names of other libraries from which the step can be read, such as checkpoint-500 or global_step500.
_STEP = re.compile(r"(?:^|[-_.])(?:checkpoint|ckpt|step|global_step)[-_=]?(\d{1,18})(?!\d)")


class Kind(str, Enum):
    SHARDED = "sharded"
    SINGLE = "single"
    FILES = "files"


class State(str, Enum):
    """``VERIFIED``: each file has the SHA-256 with which it was saved. ``WHOLE``: each file is there, with its size.
    ``UNKNOWN``: there is nothing to compare the files with. ``TORN``: a file or the marker is missing, or differs."""

    VERIFIED = "verified"
    WHOLE = "whole"
    UNKNOWN = "unknown"
    TORN = "torn"


@dataclass(frozen=True)
class StoredFile:
    """One object. ``name`` is relative to the location of the checkpoints."""

    name: str
    size: int
    modified: datetime
    etag: str


@dataclass(frozen=True)
class StoredCheckpoint:
    """Args:
    name: of the folder or file, relative to the location.
    step: None if the name has none.
    reason: why it is torn or unknown; empty if it is whole.
    expected: the size and SHA-256 of each file, by the file's name relative to the location.
    """

    name: str
    kind: Kind
    step: int | None
    files: tuple[StoredFile, ...]
    state: State
    reason: str = ""
    ranks: int | None = None
    seconds: float | None = None
    sha256: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def newest(self) -> datetime:
        return max(one.modified for one in self.files)

    @property
    def is_usable(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return self.state is not State.TORN

    @property
    def is_whole(self) -> bool:
        return self.state in (State.WHOLE, State.VERIFIED)


@dataclass(frozen=True)
class StoredCheckpoints:
    """Args:
    where: the location, such as ``s3://bucket/checkpoints/job``.
    checkpoints: the newest step first, those without a step last.
    latest: the name of the file with the facts of the newest checkpoint of one file, and the name that it has.
    """

    where: str
    checkpoints: tuple[StoredCheckpoint, ...]
    latest: tuple[StoredFile, str] | None = None

    @property
    def location(self) -> S3Location:
        return S3Location.parse(self.where)

    def object(self, name: str) -> S3Location:
        """The object of a file."""
        location = self.location
        return S3Location(location.bucket, f"{prefix_of(location)}{name}")

    @property
    def newest(self) -> StoredCheckpoint | None:
        """The one that a job would resume from: the newest whole one, or else the newest that is not known to be
        torn."""
        with_step = [one for one in self.checkpoints if one.step is not None]
        whole = [one for one in with_step if one.is_whole]
        return next(iter(whole or [one for one in with_step if one.is_usable]), None)

    def of_step(self, step: int) -> StoredCheckpoint | None:
        """The best one of this step."""
        found = [one for one in self.checkpoints if one.step == step]
        return min(found, key=lambda one: list(State).index(one.state), default=None)

    def replaced(self, checkpoints: Iterable[StoredCheckpoint]) -> StoredCheckpoints:
        return replace(self, checkpoints=tuple(checkpoints))


def prefix_of(location: S3Location) -> str:
    return f"{location.key.rstrip('/')}/" if location.key.strip("/") else ""


def stored_checkpoints(clients: Clients, where: str) -> StoredCheckpoints:
    """List the location and read the marker of each sharded checkpoint.

    Raises:
        ServiceProblem: S3 refused or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    location = S3Location.parse(where)
    what = f"the checkpoints in {where} cannot be listed"
    files = call_with_retries(clients, what, lambda: _files(clients.s3, location))
    named: dict[str, list[StoredFile]] = {}
    for one in files:
        named.setdefault(one.name.partition("/")[0], []).append(one)
    latest = _latest(clients, location, named.get(LATEST, []))
    if latest is not None:
        del named[LATEST]
    checkpoints = [_checkpoint(clients, location, name, one, latest) for name, one in named.items()]
    ordered = sorted(checkpoints, key=lambda one: (one.step is not None, one.step or 0, one.name), reverse=True)
    return StoredCheckpoints(where, tuple(ordered), (latest[0], latest[1]) if latest is not None else None)


def _files(s3: Any, location: S3Location) -> list[StoredFile]:
    prefix = prefix_of(location)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=prefix)
    return [
        StoredFile(str(one["Key"])[len(prefix) :], int(one["Size"]), one["LastModified"], str(one["ETag"]))
        for page in pages
        for one in page.get("Contents", [])
        if not one["Key"].endswith("/")  # the S3 console marks an empty folder so
    ]


def _checkpoint(
    clients: Clients,
    location: S3Location,
    name: str,
    files: Sequence[StoredFile],
    latest: tuple[StoredFile, str, Any] | None,
) -> StoredCheckpoint:
    sharded, single = _SHARDED.fullmatch(name), _SINGLE.fullmatch(name)
    if sharded and any(one.name != name for one in files):
        return _sharded(clients, location, name, int(sharded[1]), files)
    if single and files[0].name == name:
        return _single(name, int(single[1]), files[0], latest)
    step = _STEP.search(name)
    reason = "no file says which files belong to it, and no SHA-256 was saved"
    return StoredCheckpoint(name, Kind.FILES, int(step[1]) if step else None, tuple(files), State.UNKNOWN, reason)


def _sharded(
    clients: Clients, location: S3Location, name: str, step: int, files: Sequence[StoredFile]
) -> StoredCheckpoint:
    torn = StoredCheckpoint(name, Kind.SHARDED, step, tuple(files), State.TORN)
    path = f"{name}/{MARKER}"
    stored = {one.name: one for one in files}
    if path not in stored:
        return replace(torn, reason=f"{MARKER} is missing")
    marker = _read_marker(clients, location, stored[path])
    if marker is None or marker.step != step:
        return replace(torn, reason=f"{MARKER} is damaged")
    facts = {f"{name}/{one}": each for one, each in marker.files.items()}
    torn = replace(
        torn,
        ranks=marker.ranks,
        seconds=marker.seconds,
        sha256=tuple((one, each.sha256) for one, each in facts.items()),
    )
    for one, each in facts.items():
        short = one.removeprefix(f"{name}/")
        if one not in stored:
            return replace(torn, reason=f"{short} is missing")
        if stored[one].size != each.size:
            return replace(torn, reason=f"{short} has {stored[one].size} bytes instead of {each.size}")
    return replace(torn, state=State.WHOLE)


def _single(name: str, step: int, file: StoredFile, latest: tuple[StoredFile, str, Any] | None) -> StoredCheckpoint:
    one = StoredCheckpoint(name, Kind.SINGLE, step, (file,), State.UNKNOWN)
    if latest is None or latest[1] != name:
        return replace(one, reason=f"{LATEST} has the SHA-256 of another file only")
    size = latest[2].size
    if file.size != size:
        return replace(one, state=State.TORN, reason=f"it has {file.size} bytes instead of {size}")
    return replace(one, state=State.WHOLE, sha256=((name, latest[2].sha256),))


def _latest(clients: Clients, location: S3Location, files: Sequence[StoredFile]) -> tuple[StoredFile, str, Any] | None:
    if len(files) != 1 or files[0].name != LATEST:
        return None
    content = _content(clients, location, files[0])
    found = parse_latest(content) if content is not None else None
    return (files[0], *found) if found is not None else None


def _read_marker(clients: Clients, location: S3Location, file: StoredFile) -> Marker | None:
    content = _content(clients, location, file)
    return parse_marker(content) if content is not None else None


def _content(clients: Clients, location: S3Location, file: StoredFile) -> bytes | None:
    """None if it is too large, or was deleted after the listing."""
    from botocore.exceptions import ClientError

    if file.size > LARGEST:
        return None
    key = f"{prefix_of(location)}{file.name}"

    def read() -> bytes | None:
        try:
            body: bytes = clients.s3.get_object(Bucket=location.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        return body

    return call_with_retries(clients, f"s3://{location.bucket}/{key} cannot be read", read)
