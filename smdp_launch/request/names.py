"""Names of jobs and of their objects in S3."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple


def job_name(base: str, now: datetime, suffix: int) -> str:
    """``<base>-<UTC yyyymmddHHMMSS>-<4 hex>``: at most 63 characters for a base of at most 43.

    Args:
        now: with a time zone.
        suffix: 0..65535; distinguishes jobs with the same time.
    """
    return _stamped(base, now, "%Y%m%d%H%M%S", suffix)


def sweep_name(base: str, now: datetime, suffix: int) -> str:
    """``<base>-<UTC yymmddHHMM>-<4 hex>``: at most 32 characters for a base of at most 16.

    Args:
        now: with a time zone.
        suffix: 0..65535; distinguishes sweeps of the same minute.
    """
    return _stamped(base, now, "%y%m%d%H%M", suffix)


def _stamped(base: str, now: datetime, form: str, suffix: int) -> str:
    if not 0 <= suffix < 1 << 16:
        raise ValueError(f"suffix {suffix} is not within 0..65535")
    return f"{base}-{now.astimezone(timezone.utc).strftime(form)}-{suffix:04x}"


class S3Location(NamedTuple):
    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> S3Location:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return cls(bucket, key)

    def join(self, *parts: str) -> S3Location:
        return S3Location(self.bucket, "/".join([self.key.rstrip("/"), *parts]).lstrip("/"))

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def source_location(output: str, job: str) -> S3Location:
    """The location of the source archive of ``job``: with its results, so that one prefix contains everything."""
    return S3Location.parse(output).join(job, "source", "sourcedir.tar.gz")
