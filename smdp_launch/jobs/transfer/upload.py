"""Uploads a file to S3: in one request, or in parts of which several are sent at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import IO, Any

from smdp_launch.request.names import S3Location

#: Called repeatedly with the bytes sent so far and the size; from several threads, but never at the same time.
Progress = Callable[[int, int], None]

#: Bytes of a part; smaller files are sent in one request. Parts are larger if there would be more than 10,000.
PART = 8 << 20
_PARTS_AT_ONCE = 4
_NOTHING: Mapping[str, str] = MappingProxyType({})


def ignore_progress(_: int, __: int) -> None:
    """Show nothing: the default progress."""


def encryption(key: str | None) -> dict[str, str]:
    """The arguments of S3 for an object that is encrypted with ``encryption.output_key``; none without a key."""
    return {} if key is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}


def upload(
    s3: Any,
    file: IO[bytes],
    size: int,
    where: S3Location,
    progress: Progress = ignore_progress,
    options: Mapping[str, str] = _NOTHING,
) -> None:
    """Upload ``size`` bytes of ``file``, from its position to its end. The object appears only when it is complete.

    The parts of an upload that fails or is interrupted are deleted, so that they cost nothing.

    Args:
        options: further arguments of S3, such as the encryption of the object.
    """
    progress(0, size)
    if size > PART:
        _upload_parts(s3, file, size, where, progress, options)
        return
    s3.put_object(Bucket=where.bucket, Key=where.key, Body=file, **options)
    progress(size, size)


def _upload_parts(
    s3: Any, file: IO[bytes], size: int, where: S3Location, progress: Progress, options: Mapping[str, str]
) -> None:
    from s3transfer.exceptions import CancelledError
    from s3transfer.manager import TransferConfig, TransferManager

    config = TransferConfig(
        multipart_threshold=PART,
        multipart_chunksize=PART,
        max_request_concurrency=_PARTS_AT_ONCE,
        max_in_memory_upload_chunks=_PARTS_AT_ONCE,
    )
    subscriber = _Subscriber(size, progress)
    with TransferManager(s3, config) as manager:
        try:
            manager.upload(file, where.bucket, where.key, dict(options), [subscriber]).result()
        except CancelledError as error:
            raise subscriber.error or error from None


class _Subscriber:
    """Passes on the progress of s3transfer, which finds these methods by their names."""

    def __init__(self, size: int, progress: Progress) -> None:
        self.error: BaseException | None = None
        self._size = size
        self._progress = progress
        self._lock = threading.Lock()
        self._sent = self._shown = 0

    def on_progress(self, future: Any, bytes_transferred: int, **_: object) -> None:
        """Called from several threads. ``bytes_transferred`` is negative before a part is sent again."""
        with self._lock:
            self._sent += bytes_transferred
            if self._sent <= self._shown:
                return
            self._shown = self._sent
            try:
                self._progress(self._sent, self._size)
            except BaseException as error:
                self.error = error
                future.cancel()
