"""The supervisor's access to the object store: through the server, with the calls of any client.

The user's AWS configuration is not read. A server that was killed is started again. The job and its scripts continue,
since the new server has the port and the credentials of the killed one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from smdp_launch.localcloud.client.connect import Endpoint, LocalCloudError, private
from smdp_launch.localcloud.errors import DISK_FULL
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, job_hash

_DEFAULT_TYPE = "binary/octet-stream"  # of objects that are uploaded without a content type
_RETRY_LIMIT = 60.0  # seconds of retries while no server answers
Result = TypeVar("Result")


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


class Buckets:
    """Holds the clients' lock while it is open, so that the server stays while the job runs.

    Calls have the permissions of the job's role. Without a job they are calls of the platform, without restrictions.
    """

    def __init__(self, state: StateFolder, job: str | None = None) -> None:
        self._state = state
        self._holder = Holder("agent", job=job_hash(job) if job is not None else "")
        self._stack = ExitStack()
        self.endpoint = self._connect()

    def close(self) -> None:
        self._stack.close()

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, in order, without "folder" keys, which end with a slash."""
        return self._call(lambda client: [key for key in _pages(client, bucket, prefix) if not key.endswith("/")])

    def check(self, bucket: str) -> None:
        """Raises BucketError where the bucket does not exist. A role that may not list it may still write to it."""
        try:
            self._call(lambda client: client.list_objects_v2(Bucket=bucket, MaxKeys=1))
        except BucketError as error:
            if not error.is_denied:
                raise

    def check_readable(self, bucket: str, key: str) -> None:
        """Raises BucketError where the role may not read the object."""
        self._call(lambda client: client.get_object(Bucket=bucket, Key=key)["Body"].close())

    def create(self, bucket: str) -> None:
        """Create the bucket unless it exists."""
        self._call(lambda client: client.create_bucket(Bucket=bucket))

    def download(self, bucket: str, key: str, path: Path) -> None:
        def fetch(client: Any) -> None:
            body = client.get_object(Bucket=bucket, Key=key)["Body"]
            with path.open("wb") as file:
                for block in body.iter_chunks(1024 * 1024):
                    file.write(block)

        self._call(fetch)

    def content_type(self, bucket: str, key: str) -> str:
        """The object's content type; empty for the service's default."""
        found = str(self._call(lambda client: client.head_object(Bucket=bucket, Key=key)).get("ContentType", ""))
        return "" if found == _DEFAULT_TYPE else found

    def upload(self, path: Path, bucket: str, key: str, content_type: str = "") -> None:
        """Without a content type the object has the service's default."""
        kind = {"ContentType": content_type} if content_type else {}

        def send(client: Any) -> None:
            with path.open("rb") as file:
                client.put_object(Bucket=bucket, Key=key, Body=file, **kind)

        self._call(send)

    def delete(self, bucket: str, key: str) -> None:
        self._call(lambda client: client.delete_object(Bucket=bucket, Key=key))

    def _call(self, action: Callable[[Any], Result]) -> Result:
        deadline = time.monotonic() + _RETRY_LIMIT
        while True:
            try:
                return action(self._client)
            except ClientError as error:
                details, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
                raise BucketError(details["Code"], details["Message"], status) from error
            except (ConnectionError, HTTPClientError) as error:
                if time.monotonic() > deadline:
                    raise BucketError("", f"the local cloud's server does not answer: {error}") from error
                time.sleep(0.2)
                self._reconnect()
            except BotoCoreError as error:
                raise BucketError("", str(error)) from error

    def _reconnect(self) -> None:
        try:
            self._stack.close()
            self.endpoint = self._connect()
        except LocalCloudError as error:
            raise BucketError("", str(error)) from error

    def _connect(self) -> Endpoint:
        endpoint = self._stack.enter_context(private(self._state.root))
        self._client = _client(endpoint, self._holder)
        return endpoint


def _pages(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            yield entry["Key"]


def _client(endpoint: Endpoint, holder: Holder) -> Any:
    keys = Credentials(endpoint.access_key, endpoint.secret_key).of(holder)
    session = botocore.session.Session({"profile": (None, None, None, None)})  # AWS_PROFILE is not read
    for variable, value in (("config_file", os.devnull), ("credentials_file", os.devnull)):
        session.set_config_variable(variable, value)
    return session.create_client(
        "s3",
        region_name=endpoint.region,
        endpoint_url=endpoint.url,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        config=Config(
            proxies={},
            connect_timeout=5,
            read_timeout=60,
            retries={"mode": "standard", "max_attempts": 3},
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
