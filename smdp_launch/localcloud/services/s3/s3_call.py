"""Parse and validate a request to the object service. moto, which answers it, assumes valid numbers and documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import parse_qsl, unquote
from xml.parsers.expat import ExpatError

import xmltodict
from werkzeug.http import http_date, parse_date

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.objects import BUCKET_NAME, LONGEST_KEY
from smdp_launch.localcloud.protocol import wsgi
from smdp_launch.localcloud.protocol.bodies import Body
from smdp_launch.localcloud.protocol.signatures import Holder
from smdp_launch.localcloud.protocol.wsgi import JSON_BODY_LIMIT, Environ
from smdp_launch.localcloud.services.s3 import digests
from smdp_launch.localcloud.services.s3.digests import Claims

# The service's limits.
_MOST_PARTS = 10_000
_MOST_KEYS = 1000  # in one deletion
_MOST_METADATA = 2048  # bytes of the names and the values of x-amz-meta-*
# Parameters of objects, listings and multipart uploads. moto supports far more (versions, policies, life cycles...),
# but loses those settings with the server, so the local cloud refuses them.
_PARAMETERS = {
    "x-id", "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "marker",
    "encoding-type", "fetch-owner", "location", "uploads", "uploadId", "partNumber", "delete", "max-parts",
    "part-number-marker", "max-uploads", "key-marker", "upload-id-marker", "max-buckets", "bucket-region",
    "response-content-type", "response-content-disposition", "response-content-encoding",
    "response-content-language", "response-cache-control", "response-expires",
}  # fmt: skip
_NUMBERS = {"max-keys", "max-parts", "part-number-marker", "max-uploads", "max-buckets"}
_NUMBER = re.compile(r"[0-9]{1,9}")
_COPY_SOURCE = re.compile(r"/?[^/?]+/[^?]+(\?.*)?")
_ACLS = {
    "private", "public-read", "public-read-write", "authenticated-read", "aws-exec-read", "bucket-owner-read",
    "bucket-owner-full-control", "log-delivery-write",
}  # fmt: skip
_DATES = [
    f"HTTP_{copied}IF_{kind}_SINCE" for copied in ("", "X_AMZ_COPY_SOURCE_") for kind in ("MODIFIED", "UNMODIFIED")
]
_METADATA = "HTTP_X_AMZ_META_"
#: The parameters of a POST: on a bucket (False), and on an object (True).
_POSTS = {False: ({"delete"},), True: ({"uploads"}, {"uploadId"})}


@dataclass(frozen=True)
class Call:
    """A verified request. `key` is empty for calls on a bucket, and so is `bucket` for the list of buckets."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    environ: Environ
    body: IO[bytes]
    holder: Holder
    claims: Claims

    @property
    def is_copy(self) -> bool:
        return "HTTP_X_AMZ_COPY_SOURCE" in self.environ

    @property
    def is_deletion_of_several(self) -> bool:
        return self.method == "POST" and "delete" in self.query

    @property
    def source(self) -> str:
        """BUCKET/KEY of the source of a copy."""
        return unquote(self.environ["HTTP_X_AMZ_COPY_SOURCE"].partition("?")[0]).removeprefix("/")

    @property
    def upload(self) -> str | None:
        """The id of the multipart upload to which the call belongs."""
        return self.query.get("uploadId")


def read_call(environ: Environ, body: Body) -> Call:
    """Bucket and key are percent-decoded exactly once, from the target as received. Raises ServiceError."""
    path = environ[wsgi.TARGET].partition("?")[0]
    bucket, _, key = path.removeprefix("/").partition("/")
    query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
    method, names = environ["REQUEST_METHOD"], (unquote(bucket), unquote(key))
    claims = digests.read_claims(environ, body.trailers, of_body=_sends_content(method, environ, query))
    call = Call(method, *names, query, environ, body.file, environ[wsgi.HOLDER], claims)
    _check_names(call)
    _check_query(call)
    _check_headers(call)
    _check_document(call)
    return call


def _sends_content(method: str, environ: Environ, query: dict[str, str]) -> bool:
    """Whether a checksum in the headers is that of the body. In a completion it is that of the object."""
    return (method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" not in environ) or "delete" in query


def _check_names(call: Call) -> None:
    if call.bucket and not BUCKET_NAME.fullmatch(call.bucket):
        raise ServiceError("InvalidBucketName", f"{call.bucket!r} is not a bucket name.")
    unknown = sorted(set(call.query) - _PARAMETERS)
    is_form = call.environ.get("CONTENT_TYPE", "").startswith("multipart/form-data")
    if unknown or is_form or call.method not in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        name = ", ".join(unknown) or call.method
        raise ServiceError("NotImplemented", f"The local cloud's object store does not support {name}.", 501)
    if len(call.key.encode("utf-8", "surrogateescape")) > LONGEST_KEY:
        raise ServiceError("KeyTooLongError", "Your key is too long.")


def _check_query(call: Call) -> None:
    for name, value in call.query.items():
        if name in _NUMBERS and not _NUMBER.fullmatch(value):
            raise _invalid(f"{name} must be a number, not {value[:50]!r}.")
        if name.startswith("response-") and not (value.isascii() and value.isprintable()):
            raise _invalid(f"{name} must be printable ASCII, as a header is.")
    part = call.query.get("partNumber")
    if part is not None and not (_NUMBER.fullmatch(part) and 1 <= int(part) <= _MOST_PARTS):
        raise _invalid(f"partNumber must be an integer between 1 and {_MOST_PARTS}.")
    operation = call.query.keys() & {"uploads", "uploadId", "delete"}
    if call.method == "POST" and operation not in _POSTS[bool(call.key)]:
        raise ServiceError(
            "InvalidRequest", "POST is for delete on a bucket, and for uploads and uploadId on an object."
        )
    if call.method == "PUT" and ("uploadId" in call.query) != (part is not None):
        raise _invalid("A part needs both uploadId and partNumber.")


def _check_headers(call: Call) -> None:
    source = call.environ.get("HTTP_X_AMZ_COPY_SOURCE")
    if source is not None and not _COPY_SOURCE.fullmatch(unquote(source)):
        raise _invalid("x-amz-copy-source must be BUCKET/KEY.")
    owner = call.environ.get("HTTP_X_AMZ_EXPECTED_BUCKET_OWNER", ACCOUNT)
    if owner != ACCOUNT:
        raise ServiceError("AccessDenied", "Access Denied", 403)
    acl = call.environ.get("HTTP_X_AMZ_ACL")
    if acl is not None and acl not in _ACLS:
        raise _invalid(f"x-amz-acl must be one of {', '.join(sorted(_ACLS))}.")
    if any(name.startswith("HTTP_X_AMZ_GRANT_") for name in call.environ):
        raise ServiceError("NotImplemented", "The local cloud's object store does not support grants.", 501)
    size = sum(len(name) - len(_METADATA) + len(value) for name, value in _metadata(call))
    if size > _MOST_METADATA and call.method in ("PUT", "POST"):
        message = "Your metadata headers exceed the maximum allowed metadata size"
        sizes = {"Size": str(size), "MaxSizeAllowed": str(_MOST_METADATA)}
        raise ServiceError("MetadataTooLarge", message, 400, sizes)
    for name in _DATES:
        date = parse_date(call.environ.pop(name, None))
        if date is not None:  # an invalid date is ignored (RFC 9110, 13.1.3)
            call.environ[name] = http_date(date)  # the only form of an HTTP date that moto reads


def _metadata(call: Call) -> list[tuple[str, str]]:
    """The headers with metadata of the user. Each character of the values is a byte of the request."""
    return [(name, str(value)) for name, value in call.environ.items() if name.startswith(_METADATA)]


def _check_document(call: Call) -> None:
    """Raises ServiceError for a document that moto cannot read. Bodies of objects are not documents."""
    if call.method == "POST" and "uploads" not in call.query:
        document = _document(call)
        well_formed = _names_keys(document) if "delete" in call.query else _names_parts(document)
    elif call.method == "PUT" and call.bucket and not call.key:
        document = _document(call)
        well_formed = document is None or isinstance(document.get("CreateBucketConfiguration"), dict)
    else:
        return
    if not well_formed:
        raise _malformed()


def named_keys(call: Call) -> list[str]:
    """The keys of a well-formed deletion of several objects."""
    return [one["Key"] for one in _entries(_document(call), "Delete", "Object")]


def _document(call: Call) -> Any:
    """The parsed body; None for an empty body. Raises ServiceError."""
    data = call.body.read(JSON_BODY_LIMIT + 1)
    call.body.seek(0)
    if len(data) > JSON_BODY_LIMIT:
        raise _malformed()
    try:
        return xmltodict.parse(data) if data else None
    except (ExpatError, ValueError):
        raise _malformed() from None


def _names_keys(document: Any) -> bool:
    objects = _entries(document, "Delete", "Object") or [{}]
    return len(objects) <= _MOST_KEYS and all(isinstance(one.get("Key"), str) for one in objects)


def _names_parts(document: Any) -> bool:
    return all(
        isinstance(one.get("ETag"), str) and _NUMBER.fullmatch(str(one.get("PartNumber", "")))
        for one in _entries(document, "CompleteMultipartUpload", "Part") or [{}]
    )


def _entries(document: Any, root: str, name: str) -> list[dict[str, Any]]:
    """The entries of the document's list; an empty list for a document of another form."""
    content = document.get(root) if document is not None else None
    found = content.get(name) if isinstance(content, dict) else None
    listed: list[Any] = found if isinstance(found, list) else [found]
    return listed if all(isinstance(one, dict) for one in listed) else []


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidArgument", message)


def _malformed() -> ServiceError:
    return ServiceError("MalformedXML", "The XML you provided was not well-formed or did not validate.")
