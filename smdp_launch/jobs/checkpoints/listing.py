"""The files at a job's checkpoint location, as S3 lists them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from smdp_launch.jobs.service.response_time import response_time
from smdp_launch.plain_text import without_controls
from smdp_launch.request.names import S3Location


@dataclass(frozen=True)
class Checkpoints:
    """A summary of the files.

    Args:
        newest: LastModified of the newest file, by S3's clock.
        name: path of the newest file, relative to ``where``, without terminal control sequences.
        size: bytes of all files.
        age: seconds from ``newest`` to the listing, by S3's clock; None if the service sends no time.
    """

    where: str
    files: int
    newest: datetime
    name: str = ""
    size: int = 0
    age: float | None = None


@dataclass(frozen=True)
class Listing:
    """Args:
    checkpoints: None if there is no file.
    times: LastModified of each file, unsorted.
    at: the time of the listing by S3's clock; None if the service sends no time.
    pages: number of calls, of 1000 files each.
    """

    checkpoints: Checkpoints | None
    times: tuple[datetime, ...]
    at: datetime | None
    pages: int


def list_checkpoints(s3: Any, where: str) -> Listing:
    """Raises botocore's errors."""
    location = S3Location.parse(where)
    prefix = f"{location.key.rstrip('/')}/" if location.key else ""
    times: list[datetime] = []
    newest: tuple[datetime, str] | None = None
    size, pages, answer = 0, 0, {}
    for answer in s3.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=prefix):
        pages += 1
        for one in answer.get("Contents", []):
            if not one["Key"].endswith("/"):  # the S3 console marks an empty folder so
                times.append(one["LastModified"])
                size += int(one["Size"])
                newest = max(newest or (times[-1], ""), (times[-1], str(one["Key"])))
    at = response_time(answer)
    if newest is None:
        return Listing(None, (), at, pages)
    age = max(0.0, (at - newest[0]).total_seconds()) if at is not None else None
    name = without_controls(newest[1].removeprefix(prefix))
    return Listing(Checkpoints(where, len(times), newest[0], name, size, age), tuple(times), at, pages)
