"""The supervisor's access to the object store: through the server, with the calls of any client.

The user's AWS configuration is not read. A server that was killed is started again. The job and its scripts continue,
since the new server has the port and the credentials of the killed one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.config import Config

from smdp_launch.localcloud.client.session import Session
from smdp_launch.localcloud.errors import DISK_FULL
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol.signatures import Holder, job_hash

_DEFAULT_TYPE = "binary/octet-stream"  # of objects that are uploaded without a content type
_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 3},
    s3={"addressing_style": "path"},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class BucketError(Exception):
    """The object store refused a call or could not be reached.

    Args:
        code: of S3, such as NoSuchBucket; empty where the object store could not be reached.
        status: of HTTP.
    """

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.work = ""

    @property
    def reason(self) -> str:
        """The error in the form that the platform writes into FailureReason."""
        return f"{self.work}:{self.code} ({self.status}): {self}" if self.work else f"{self.code}: {self}"

    @property
    def is_denied(self) -> bool:
        return self.code == "AccessDenied"

    @property
    def is_disk_full(self) -> bool:
        return self.code == DISK_FULL


@contextmanager
def during(work: str) -> Iterator[None]:
    """Set `work`, the job's step, in errors of the object store."""
    try:
        yield
    except BucketError as error:
        error.work = work
        raise


class Buckets(Session):
    """Holds the clients' lock while it is open, so that the server stays while the job runs.

    Calls have the permissions of the job's role. Without a job they are calls of the platform, without restrictions.
    """

    def __init__(self, state: StateFolder, job: str | None = None) -> None:
        super().__init__(state, "s3", Holder("agent", job=job_hash(job) if job is not None else ""), _CONFIG)

    def error(self, code: str, message: str, status: int = 0) -> BucketError:
        return BucketError(code, message, status)

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, in order, without "folder" keys, which end with a slash."""
        return self.attempt(lambda client: [key for key in _pages(client, bucket, prefix) if not key.endswith("/")])

    def check(self, bucket: str) -> None:
        """Raises BucketError where the bucket does not exist. A role that may not list it may still write to it."""
        try:
            self.attempt(lambda client: client.list_objects_v2(Bucket=bucket, MaxKeys=1))
        except BucketError as error:
            if not error.is_denied:
                raise

    def check_readable(self, bucket: str, key: str) -> None:
        """Raises BucketError where the role may not read the object."""
        self.attempt(lambda client: client.get_object(Bucket=bucket, Key=key)["Body"].close())

    def create(self, bucket: str) -> None:
        """Create the bucket unless it exists."""
        self.attempt(lambda client: client.create_bucket(Bucket=bucket))

    def download(self, bucket: str, key: str, path: Path) -> None:
        def fetch(client: Any) -> None:
            body = client.get_object(Bucket=bucket, Key=key)["Body"]
            with path.open("wb") as file:
                for block in body.iter_chunks(1024 * 1024):
                    file.write(block)

        self.attempt(fetch)

    def content_type(self, bucket: str, key: str) -> str:
        """The object's content type; empty for the service's default."""
        found = str(self.attempt(lambda client: client.head_object(Bucket=bucket, Key=key)).get("ContentType", ""))
        return "" if found == _DEFAULT_TYPE else found

    def upload(self, path: Path, bucket: str, key: str, content_type: str = "") -> None:
        """Without a content type the object has the service's default."""
        kind = {"ContentType": content_type} if content_type else {}

        def send(client: Any) -> None:
            with path.open("rb") as file:
                client.put_object(Bucket=bucket, Key=key, Body=file, **kind)

        self.attempt(send)

    def delete(self, bucket: str, key: str) -> None:
        self.attempt(lambda client: client.delete_object(Bucket=bucket, Key=key))


def _pages(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            yield entry["Key"]
