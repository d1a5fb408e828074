"""What lies at a job's checkpoint location, as S3 lists it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from smdp_launch.plain_text import without_controls
from smdp_launch.request.names import S3Location


@dataclass(frozen=True)
class Checkpoints:
    """What lies there.

    Args:
        newest: when S3 last took a file, by its own clock.
        name: of that file, below ``where``, without what a terminal would obey.
        size: bytes of all files.
        age: seconds since ``newest`` at the time of the look, by the same clock; None from a service without one.
    """

    where: str
    files: int
    newest: datetime
    name: str = ""
    size: int = 0
    age: float | None = None


@dataclass(frozen=True)
class Listing:
    """One look at all of it.

    Args:
        checkpoints: None where there is no file.
        times: when S3 took each file, in no order.
        at: the time of the look by S3's clock; None from a service that does not tell its time.
        pages: calls that it took, of 1000 files each.
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
            if not one["Key"].endswith("/"):  # a console's way to show an empty folder
                times.append(one["LastModified"])
                size += int(one["Size"])
                newest = max(newest or (times[-1], ""), (times[-1], str(one["Key"])))
    at = _told_time(answer)
    if newest is None:
        return Listing(None, (), at, pages)
    age = max(0.0, (at - newest[0]).total_seconds()) if at is not None else None
    name = without_controls(newest[1].removeprefix(prefix))
    kept = Checkpoints(where, len(times), newest[0], name, size, age)
    return Listing(kept, tuple(times), at, pages)


def _told_time(answer: Mapping[str, Any]) -> datetime | None:
    told = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        at = parsedate_to_datetime(told) if told else None
    except ValueError:
        return None
    return at.replace(tzinfo=timezone.utc) if at is not None and at.tzinfo is None else at
