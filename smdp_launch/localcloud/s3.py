"""The object service: moto's S3 for names and metadata, files for the bytes.

moto sees one request at a time, and none of the large ones' bytes: bodies of objects and parts are attached to what it
has made of the request, and read from disk for the answer. Memory therefore does not grow with the size of an object.
Every change is on disk before it is acknowledged.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.test import run_wsgi_app

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.gateway import JSON_BODY_LIMIT, Environ, StartResponse
from smdp_launch.localcloud.mirror import Mirror
from smdp_launch.localcloud.s3_call import Call, read_call
from smdp_launch.localcloud.values import NoValue, Slice, SliceReader, cut, md5

_PART_NUMBER = re.compile(rb"<PartNumber>\s*(\d+)\s*</PartNumber>")
_CHECKSUM = re.compile(rb"<Checksum\w+>[^<]*</Checksum\w+>")

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Headers
    body: Iterable[bytes]

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def replacing(self, **headers: str) -> Headers:
        """The headers with these in place of those of the same name; `content_length` stands for Content-Length."""
        new = {name.replace("_", "-"): value for name, value in headers.items()}
        return [pair for pair in self.headers if pair[0].lower() not in new] + list(new.items())


class ObjectStore:
    """Called by the gateway with requests that are verified."""

    def __init__(self, root: Path) -> None:
        self._backend = s3_backends[ACCOUNT]["aws"]
        self._mirror = Mirror(root, self._backend)
        self._mirror.load()
        self._application = create_backend_app("s3")
        self._lock = threading.Lock()  # moto and the disk are used, and kept alike, under it

    def __call__(self, environ: Environ, body: IO[bytes], start_response: StartResponse) -> Iterable[bytes]:
        call = read_call(environ, body)
        with self._lock, self._undone_on_failure(call):
            self._check_place(call)
            answer = self._dispatch(call)
        start_response(f"{answer.status} -", answer.headers)
        return answer.body

    @contextmanager
    def _undone_on_failure(self, call: Call) -> Iterator[None]:
        """moto takes an object before the disk does. Where the disk has no room, moto gets back what it had: else it
        would list an object that is not there, and hold its bytes, deleted but open, on the full disk."""
        before = self._key(call)
        try:
            yield
        except OSError:
            bucket = self._backend.buckets.get(call.bucket)
            if bucket is not None and self._key(call) is not before:
                if before is None:
                    bucket.keys.pop(call.key)
                else:
                    bucket.keys.setlist(call.key, [before])
            raise

    def _check_place(self, call: Call) -> None:
        """That the upload, or the place in a listing, that it names is there."""
        upload, token = call.upload, call.query.get("continuation-token")
        if upload is not None and call.bucket in self._backend.buckets and self._upload(call, upload) is None:
            raise ServiceError("NoSuchUpload", "The specified multipart upload does not exist.", 404)
        if token and token not in self._backend._pagination_tokens:
            raise ServiceError("InvalidArgument", "The continuation token provided is incorrect")

    def _dispatch(self, call: Call) -> Answer:
        if call.key and call.method == "GET" and "uploadId" not in call.query:
            return self._get(call)
        if call.key and call.method == "PUT" and not call.is_copy:
            return self._put(call)
        if call.key and call.method == "POST" and "uploadId" in call.query:
            return self._complete(call)
        if call.method == "PUT" and not call.key and call.bucket in self._backend.buckets:
            return Answer(200, [("Location", f"/{call.bucket}"), ("Content-Length", "0")], [])
        with call.body:
            answer = self._ask_moto(call, call.body)
        if answer.is_success and call.method in ("PUT", "POST", "DELETE"):
            self._record(call)
        return answer

    def _ask_moto(self, call: Call, body: IO[bytes]) -> Answer:
        environ = call.environ
        environ["wsgi.input"] = body
        # The router decodes and merges slashes, which would change the key; the key itself is taken from the
        # raw target.
        environ["PATH_INFO"] = f"/{call.bucket}/object" if call.key else f"/{call.bucket}"
        parts, status, headers = run_wsgi_app(self._application, environ)
        return Answer(int(status.split(maxsplit=1)[0]), list(headers), list(parts))

    def _record(self, call: Call) -> None:
        if call.key:
            self._mirror.sync_key(call.bucket, call.key)
        elif call.method == "PUT":
            self._mirror.add_bucket(call.bucket)
        elif call.method == "DELETE":
            self._mirror.sync_buckets()
        elif "delete" in call.query:
            self._mirror.sync_deleted(call.bucket)

    def _get(self, call: Call) -> Answer:
        call.body.close()
        wanted = call.environ.pop("HTTP_RANGE", "")
        key = self._key(call)
        if key is None:
            return self._ask_moto(call, BytesIO())
        value, key._value_buffer = key._value_buffer, NoValue()
        try:
            answer = self._ask_moto(call, BytesIO())
        finally:
            key._value_buffer = value
        if answer.status != 200:
            return answer
        part = cut(wanted, key.size)
        # Opened under the lock: an object that is replaced now is still read as it was.
        file = value.path.open("rb")
        if part is None:
            whole = Slice(0, key.size, key.size)
            return Answer(200, answer.replacing(content_length=str(key.size)), SliceReader(file, whole))
        headers = answer.replacing(content_length=str(part.end - part.start), content_range=part.content_range)
        headers = [pair for pair in headers if not pair[0].lower().startswith("x-amz-checksum-")]
        return Answer(206, headers, SliceReader(file, part))

    def _put(self, call: Call) -> Answer:
        """An object, or a part of one: moto is told of an empty body, and the real one is attached."""
        tag, size = md5(call.body), int(call.environ.get("CONTENT_LENGTH") or 0)
        algorithm = call.environ.get("HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM", "").upper()
        if f"HTTP_X_AMZ_CHECKSUM_{algorithm}" not in call.environ:
            call.environ.pop("HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM", None)  # moto would compute it of the empty body
        call.environ["CONTENT_LENGTH"] = "0"
        answer = self._ask_moto(call, BytesIO())
        if not answer.is_success:
            return answer
        upload = call.upload
        if upload is None:
            key = self._key(call)
        else:
            key = self._upload(call, upload).parts[int(call.query["partNumber"])]
        key._etag, key.contentsize = tag, size
        key._value_buffer.close()
        key._value_buffer = call.body
        if upload is None:
            self._mirror.write(call.bucket, key, [call.body])
        return Answer(answer.status, answer.replacing(etag=f'"{tag}"'), answer.body)

    def _complete(self, call: Call) -> Answer:
        """Join the parts of an upload. moto joins empty ones, but computes the ETag of the real ones' ETags."""
        with call.body:
            listing = call.body.read(JSON_BODY_LIMIT)
        upload = self._upload(call, call.query["uploadId"])
        if upload is None:
            return self._ask_moto(call, BytesIO(listing))
        parts = dict(upload.parts)
        values = {number: part._value_buffer for number, part in parts.items()}
        for part in parts.values():
            part._value_buffer = NoValue()
        answer = self._ask_moto(call, BytesIO(listing))
        if not answer.is_success:
            for number, part in parts.items():
                part._value_buffer = values[number]
            return answer
        chosen = [int(number) for number in _PART_NUMBER.findall(listing)]
        key = self._key(call)
        key.contentsize = sum(parts[number].contentsize for number in chosen)
        key.checksum_algorithm = key.checksum_value = key.checksum_type = key.checksum_parts = None
        self._mirror.write(call.bucket, key, [values[number] for number in chosen])
        for value in values.values():
            value.close()
        body = _CHECKSUM.sub(b"", b"".join(answer.body))
        return Answer(answer.status, answer.replacing(content_length=str(len(body))), [body])

    def _key(self, call: Call) -> Any:
        bucket = self._backend.buckets.get(call.bucket)
        return bucket.keys.get(call.key) if bucket else None

    def _upload(self, call: Call, identifier: str) -> Any:
        bucket = self._backend.buckets.get(call.bucket)
        return bucket.multiparts.get(identifier) if bucket else None
