"""A file to S3: in one piece, or in parts of which several travel at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import IO, Any

from smdp_launch.request.names import S3Location

#: Told the bytes that are there and the bytes that there are, again and again; from several threads, one at a time.
Progress = Callable[[int, int], None]

#: Smaller files go in one piece. S3 takes parts of 5 MiB or more, but for the last, and 10,000 of them.
PART = 8 << 20
_MOST_PARTS = 10_000
_AT_ONCE = 4


def unseen(_: int, __: int) -> None:
    """Progress that nobody looks at."""


def upload(s3: Any, file: IO[bytes], size: int, where: S3Location, progress: Progress = unseen) -> None:
    """Send ``size`` bytes of ``file`` from where it stands. The object appears whole or not at all.

    What was sent of an upload that fails or is interrupted is taken away again, so that it costs nothing.
    """
    progress(0, size)
    if size <= PART:
        s3.put_object(Bucket=where.bucket, Key=where.key, Body=file)
        progress(size, size)
        return
    target = {"Bucket": where.bucket, "Key": where.key}
    target["UploadId"] = s3.create_multipart_upload(**target)["UploadId"]
    try:
        parts = _Parts(s3, target, size, progress).send(file)
        s3.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})
    except BaseException:
        with suppress(Exception):  # the cause is what is told
            s3.abort_multipart_upload(**target)
        raise


class _Parts:
    def __init__(self, s3: Any, target: dict[str, str], size: int, progress: Progress) -> None:
        self._s3 = s3
        self._target = target
        self._size = size
        self._length = max(PART, -(-size // _MOST_PARTS))
        self._progress = progress
        self._lock = threading.Lock()  # over what has been sent, and the progress that tells of it
        self._sent = 0

    def send(self, file: IO[bytes]) -> list[dict[str, Any]]:
        """All parts; no more than a few are in memory at a time."""
        done: list[Future[dict[str, Any]]] = []
        going: set[Future[dict[str, Any]]] = set()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for number, data in enumerate(self._read(file), 1):
                    going.add(pool.submit(self._send_one, number, data))
                    if len(going) >= _AT_ONCE:
                        ended, going = wait(going, return_when=FIRST_COMPLETED)
                        done += ended
                        for one in ended:
                            one.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return sorted((one.result() for one in [*done, *going]), key=lambda part: int(part["PartNumber"]))

    def _read(self, file: IO[bytes]) -> Iterator[bytes]:
        while data := file.read(self._length):
            yield data

    def _send_one(self, number: int, data: bytes) -> dict[str, Any]:
        answer = self._s3.upload_part(**self._target, PartNumber=number, Body=data)
        with self._lock:
            self._sent += len(data)
            self._progress(self._sent, self._size)
        return {"PartNumber": number, "ETag": answer["ETag"]}
