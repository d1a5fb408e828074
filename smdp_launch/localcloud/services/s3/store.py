"""The object service: moto's S3 for names and metadata, files for the bytes.

moto gets one request at a time, without the bytes of objects and parts. The bytes are attached to the object that moto
has created, and are read from disk for the answer. Memory therefore does not grow with the size of an object. Every
change is on disk before it is acknowledged.
"""

from __future__ import annotations

import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape

from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.test import run_wsgi_app

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError, allowed_in_xml
from smdp_launch.localcloud.protocol.bodies import Body
from smdp_launch.localcloud.protocol.wsgi import JSON_BODY_LIMIT, Environ, StartResponse
from smdp_launch.localcloud.services.s3 import digests, multipart
from smdp_launch.localcloud.services.s3.digests import Checksum
from smdp_launch.localcloud.services.s3.mirror import Mirror
from smdp_launch.localcloud.services.s3.permissions import Need, Permissions, needs
from smdp_launch.localcloud.services.s3.s3_call import Call, named_keys, read_call
from smdp_launch.localcloud.services.s3.values import NoValue, Slice, SliceReader, blocks, cut

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
        """The headers, with these instead of those of the same name; `content_length` means Content-Length."""
        new = {name.replace("_", "-"): value for name, value in headers.items()}
        return [pair for pair in self.headers if pair[0].lower() not in new] + list(new.items())

    def with_checksum(self, checksum: Checksum | None) -> Answer:
        """The answer with this object's checksum, or with none."""
        headers = [pair for pair in self.headers if not pair[0].lower().startswith("x-amz-checksum-")]
        return Answer(self.status, headers + (checksum.headers if checksum is not None else []), self.body)


class ObjectStore:
    """A WSGI application for verified requests."""

    def __init__(self, root: Path, permissions: Permissions) -> None:
        self._permissions = permissions
        self._backend = s3_backends[ACCOUNT]["aws"]
        self._mirror = Mirror(root, self._backend)
        self._mirror.load()
        self._application = create_backend_app("s3")
        self._lock = threading.Lock()  # for all use of moto and the disk, which must stay equal

    def __call__(self, environ: Environ, body: Body, start_response: StartResponse) -> Iterable[bytes]:
        call = read_call(environ, body)
        with self._lock:
            denied = self._denial(call)
        if denied is not None and not call.is_deletion_of_several:
            raise denied
        tag = call.claims.verify(blocks(call.body))
        call.body.seek(0)
        with self._lock, self._undone_on_failure(call):
            self._check_place(call)
            answer = _denied_each(call, denied) if denied is not None else self._dispatch(call, tag)
        if answer.status >= 400:
            answer = _refusal(answer, call)
        start_response(f"{answer.status} -", answer.headers)
        return answer.body

    def _denial(self, call: Call) -> ServiceError | None:
        """The error for a missing permission, in the order of S3.

        S3 reports a bucket that does not exist before it checks permissions. It reports a key that does not exist only
        to clients that may list the bucket.
        """
        if call.bucket and call.bucket not in self._backend.buckets and (call.key or call.method != "PUT"):
            return None
        needed = needs(call)
        if call.method in ("GET", "HEAD") and call.key and self._key(call) is None and call.upload is None:
            needed.append(Need("s3:ListBucket", call.bucket))
        denials = (self._permissions.denial(call.holder, need) for need in needed)
        return next((one for one in denials if one is not None), None)

    @contextmanager
    def _undone_on_failure(self, call: Call) -> Iterator[None]:
        """Restore moto's object where the disk has no space for the new one.

        moto gets an object before the disk does. Otherwise it would list an object that does not exist, and keep its
        deleted file open on the full disk.
        """
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
        """Raises ServiceError for a multipart upload or a continuation token that does not exist."""
        upload, token = call.upload, call.query.get("continuation-token")
        if upload is not None and call.bucket in self._backend.buckets and self._upload(call, upload) is None:
            raise ServiceError("NoSuchUpload", "The specified multipart upload does not exist.", 404)
        if token and token not in self._backend._pagination_tokens:
            raise ServiceError("InvalidArgument", "The continuation token provided is incorrect")

    def _dispatch(self, call: Call, tag: str) -> Answer:
        """`tag` is the entity tag of the body."""
        if call.key and call.method in ("GET", "HEAD") and "uploadId" not in call.query:
            return self._get(call)
        if call.key and call.method == "PUT" and not call.is_copy:
            return self._put(call, tag)
        if call.key and call.method == "POST" and "uploadId" in call.query:
            return self._complete(call)
        if call.method == "PUT" and not call.key and call.bucket in self._backend.buckets:
            return Answer(200, [("Location", f"/{call.bucket}"), ("Content-Length", "0")], [])
        algorithm = call.environ.pop("HTTP_X_AMZ_CHECKSUM_ALGORITHM", "") if call.is_copy else ""
        with call.body:
            answer = self._ask_moto(call, call.body)
        if answer.is_success and call.is_copy and call.upload is None:
            self._attach_checksum_of_copy(self._key(call), algorithm.upper())
        if answer.is_success and call.method in ("PUT", "POST", "DELETE"):
            self._write_change(call)
        return answer

    def _attach_checksum_of_copy(self, key: Any, algorithm: str) -> None:
        """A copy has a checksum of the whole object, even where the source has one of parts."""
        algorithm = algorithm or key.checksum_algorithm
        if algorithm:
            multipart.attach(key, digests.of_blocks(algorithm, blocks(key._value_buffer)))

    def _ask_moto(self, call: Call, body: IO[bytes]) -> Answer:
        environ = call.environ
        environ["wsgi.input"] = body
        # The router decodes the path and merges slashes, which would change the key; moto reads the key from the raw
        # target instead.
        environ["PATH_INFO"] = f"/{call.bucket}/object" if call.key else f"/{call.bucket}"
        parts, status, headers = run_wsgi_app(self._application, environ)
        return Answer(int(status.split(maxsplit=1)[0]), list(headers), list(parts))

    def _write_change(self, call: Call) -> None:
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
        byte_range = call.environ.pop("HTTP_RANGE", "") if call.method == "GET" else ""
        if "partNumber" in call.query:
            raise ServiceError("NotImplemented", "The local cloud does not read objects by part; use Range.", 501)
        shows_checksum = call.environ.get("HTTP_X_AMZ_CHECKSUM_MODE", "").upper() == "ENABLED"
        digests.remove_checksum_headers(call.environ)
        key = self._key(call)
        if key is None:
            return self._ask_moto(call, BytesIO())
        value, key._value_buffer = key._value_buffer, NoValue()
        try:
            answer = self._ask_moto(call, BytesIO())
        finally:
            key._value_buffer = value
        if answer.is_success:
            answer = answer.with_checksum(multipart.attached(key) if shows_checksum else None)
        if call.method == "HEAD" or answer.status != 200:
            return answer
        part = cut(byte_range, key.size)
        # Opened under the lock: if the object is replaced meanwhile, the answer still has the old bytes.
        file = value.path.open("rb")
        if part is None:
            whole = Slice(0, key.size, key.size)
            return Answer(200, answer.replacing(content_length=str(key.size)), SliceReader(file, whole))
        answer = answer.with_checksum(None)
        headers = answer.replacing(content_length=str(part.end - part.start), content_range=part.content_range)
        return Answer(206, headers, SliceReader(file, part))

    def _put(self, call: Call, tag: str) -> Answer:
        """Store an object, or a part of one. moto gets an empty body without a checksum; the real ones are attached."""
        checksum, size = call.claims.checksum, int(call.environ["CONTENT_LENGTH"])
        upload = self._upload(call, call.upload) if call.upload is not None else None
        if upload is not None:
            multipart.check_part(upload, checksum)
        digests.remove_checksum_headers(call.environ)
        call.environ["CONTENT_LENGTH"] = "0"
        answer = self._ask_moto(call, BytesIO())
        if not answer.is_success:
            return answer
        key = self._key(call) if upload is None else upload.parts[int(call.query["partNumber"])]
        key._etag, key.contentsize = tag, size
        multipart.attach(key, checksum)
        key._value_buffer.close()
        key._value_buffer = call.body
        if upload is None:
            self._mirror.write(call.bucket, key, [call.body])
        return Answer(answer.status, answer.replacing(etag=f'"{tag}"'), answer.body).with_checksum(checksum)

    def _complete(self, call: Call) -> Answer:
        """Join the parts of an upload. moto joins empty parts, but computes the ETag from the real parts' ETags."""
        with call.body:
            listing = call.body.read(JSON_BODY_LIMIT)
        upload = self._upload(call, call.query["uploadId"])
        if upload is None:
            return self._ask_moto(call, BytesIO(listing))
        listed = multipart.listed(listing)
        checksum = multipart.whole(upload, listed, digests.checksum_headers(call.environ))
        digests.remove_checksum_headers(call.environ)
        parts = dict(upload.parts)
        values = {number: part._value_buffer for number, part in parts.items()}
        for part in parts.values():
            part._value_buffer = NoValue()
        answer = self._ask_moto(call, BytesIO(listing))
        if not answer.is_success:
            for number, part in parts.items():
                part._value_buffer = values[number]
            return answer
        numbers = [one.number for one in listed]
        key = self._key(call)
        key.contentsize = sum(parts[number].contentsize for number in numbers)
        multipart.attach(key, checksum)
        self._mirror.write(call.bucket, key, [values[number] for number in numbers])
        for value in values.values():
            value.close()
        body = _with_checksum(checksum, b"".join(answer.body))
        return Answer(answer.status, answer.replacing(content_length=str(len(body))), [body])

    def _key(self, call: Call) -> Any:
        bucket = self._backend.buckets.get(call.bucket)
        return bucket.keys.get(call.key) if bucket else None

    def _upload(self, call: Call, identifier: str) -> Any:
        bucket = self._backend.buckets.get(call.bucket)
        return bucket.multiparts.get(identifier) if bucket else None


def _with_checksum(checksum: Checksum | None, document: bytes) -> bytes:
    """The answer to a completion, with the object's checksum instead of moto's, which is that of no bytes."""
    plain = _CHECKSUM.sub(b"", document)
    if checksum is None:
        return plain
    name = f"Checksum{checksum.algorithm}"
    element = f"<{name}>{checksum.value}</{name}><ChecksumType>{checksum.kind}</ChecksumType>".encode()
    head, end, tail = plain.rpartition(b"</")
    return head + element + end + tail


def _denied_each(call: Call, denied: ServiceError) -> Answer:
    """The answer to a denied deletion of several keys: an error for each key."""
    errors = "".join(
        f"<Error><Key>{escape(allowed_in_xml(key))}</Key><Code>{denied.code}</Code><Message>{escape(denied.message)}</Message></Error>"
        for key in named_keys(call)
    )
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult>{errors}</DeleteResult>'.encode()
    return Answer(200, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], [body])


def _refusal(answer: Answer, call: Call) -> Answer:
    """Raise moto's error as a ServiceError, so that one place writes all errors. An answer without XML is returned."""
    document = b"".join(answer.body)
    try:
        root = ET.fromstring(allowed_in_xml(document.decode("utf-8", "replace")))  # noqa: S314 (moto wrote it)
    except ET.ParseError:
        return Answer(answer.status, answer.headers, [document])
    found = {element.tag.rpartition("}")[2]: element.text or "" for element in root.iter()}
    code = found.get("Code", "InternalError")
    named = {"NoSuchBucket": {"BucketName": call.bucket}, "NoSuchKey": {"Key": call.key}}
    raise ServiceError(code, found.get("Message", ""), answer.status, named.get(code, {}))
