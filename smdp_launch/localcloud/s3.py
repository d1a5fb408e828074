"""The object service: moto's S3, one request at a time, with every change on disk before it is acknowledged."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO
from urllib.parse import parse_qsl, unquote

from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.test import run_wsgi_app

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.gateway import Environ, Gateway, StartResponse
from smdp_launch.localcloud.mirror import Mirror

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Parameters of what is kept for good: objects, listings, multipart uploads. moto knows far more (versions, policies,
# life cycles...), but that would be forgotten with the server, so it is refused instead.
_PARAMETERS = {
    "x-id", "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "marker",
    "encoding-type", "fetch-owner", "location", "uploads", "uploadId", "partNumber", "delete", "max-parts",
    "part-number-marker", "max-uploads", "key-marker", "upload-id-marker", "max-buckets", "bucket-region",
    "response-content-type", "response-content-disposition", "response-content-encoding",
    "response-content-language", "response-cache-control", "response-expires",
}  # fmt: skip
_SUCCESS = range(200, 300)


class ObjectStore:
    """Called by the gateway with requests that are verified. Only one runs at a time, which bounds memory to the
    object in hand (moto reads it whole) and keeps the disk and moto in step."""

    def __init__(self, root: Path) -> None:
        self._backend = s3_backends[ACCOUNT]["aws"]
        self._mirror = Mirror(root, self._backend)
        self._mirror.load()
        self._application = create_backend_app("s3")
        self._lock = threading.Lock()

    def __call__(self, environ: Environ, body: IO[bytes], start_response: StartResponse) -> Iterable[bytes]:
        bucket, key = _address(environ[Gateway.TARGET])
        query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        method = environ["REQUEST_METHOD"]
        _check(method, bucket, key, query, environ)
        environ["wsgi.input"] = body
        # The router decodes and merges slashes, which would change the key; the key itself is taken
        # from the raw target.
        environ["PATH_INFO"] = f"/{bucket}/object" if key else f"/{bucket}"
        try:
            with self._lock:
                if method == "PUT" and bucket in self._backend.buckets and not key:
                    start_response("200 OK", [("Location", f"/{bucket}"), ("Content-Length", "0")])
                    return []
                status, headers, data = self._run(environ)
                if status in _SUCCESS and method in ("PUT", "POST", "DELETE"):
                    self._record(method, bucket, key, query)
        finally:
            body.close()
        start_response(f"{status} -", headers)
        return [data]

    def _run(self, environ: Environ) -> tuple[int, list[tuple[str, str]], bytes]:
        parts, status, headers = run_wsgi_app(self._application, environ)
        blocks = list(parts)
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        return int(status.split(maxsplit=1)[0]), list(headers), data

    def _record(self, method: str, bucket: str, key: str, query: dict[str, str]) -> None:
        if not key and method == "PUT":
            self._mirror.add_bucket(bucket)
        elif not key and method == "DELETE":
            self._mirror.sync_buckets()
        elif "delete" in query:
            self._mirror.sync_deleted(bucket)
        elif key:
            self._mirror.sync_key(bucket, key)


def _address(target: str) -> tuple[str, str]:
    """Bucket and key of a raw request target, percent-decoded exactly once."""
    path = target.partition("?")[0]
    bucket, _, key = path.removeprefix("/").partition("/")
    return unquote(bucket), unquote(key)


def _check(method: str, bucket: str, key: str, query: dict[str, str], environ: Environ) -> None:
    if bucket and not _BUCKET_NAME.fullmatch(bucket):
        raise ServiceError("InvalidBucketName", f"{bucket!r} is not a bucket name.")
    unknown = sorted(set(query) - _PARAMETERS)
    is_form = environ.get("CONTENT_TYPE", "").startswith("multipart/form-data")
    if unknown or is_form or method not in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        what = ", ".join(unknown) or method
        raise ServiceError("NotImplemented", f"The local cloud's object store does not have {what}.", 501)
    if len(key.encode("utf-8", "surrogateescape")) > 1024:
        raise ServiceError("KeyTooLongError", "Your key is too long.")
