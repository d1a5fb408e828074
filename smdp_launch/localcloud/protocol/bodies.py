"""Receive the body of an object request, decode it, check it against the signature, and write it to disk.

The checks come before any other use of the body. Its digests are checked in `digests`.
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.chunks import BLOCK, Bounded, Chain, Dechunked, Decoder
from smdp_launch.localcloud.protocol.signatures import STREAMING, UNSIGNED_PAYLOAD, Claim, Head

_TRAILER_NAME = re.compile(r"x-amz-checksum-[a-z0-9]+")


@dataclass
class Body:
    """`file` is deleted when it is closed or when this process ends."""

    file: IO[bytes]
    size: int = 0
    trailers: Mapping[str, str] = field(default_factory=dict)


def content_length(head: Head) -> int:
    if head.values("transfer-encoding"):
        raise _no_length("Bodies must have a Content-Length.")
    return _length(head, "content-length") or 0


def receive(head: Head, stream: IO[bytes], declared: str, chain: Chain | None, spool: Path) -> Body:
    """Receive the body. Raises ServiceError for a body that the signature does not cover.

    Args:
        stream: the bytes after the head on the connection.
        declared: the signed statement about the body: its hash, UNSIGNED-PAYLOAD or a form of chunks.
        chain: signatures of chunks, for the forms that have them.
    """
    file = tempfile.TemporaryFile(dir=spool)  # noqa: SIM115 (the reader closes it)
    try:
        if declared in STREAMING:
            return _decode(head, stream, declared, chain, file)
        return _copy(Bounded(stream, content_length(head)), declared, file)
    except BaseException:
        file.close()
        raise


def _copy(source: io.RawIOBase, declared: str, file: IO[bytes]) -> Body:
    checksum, size = hashlib.sha256(), 0
    reader = io.BufferedReader(source)
    while block := reader.read(BLOCK):
        checksum.update(block)
        size += len(block)
        file.write(block)
    if declared not in (UNSIGNED_PAYLOAD, checksum.hexdigest()):
        raise ServiceError("XAmzContentSHA256Mismatch", "The body is not the one that was signed.")
    file.seek(0)
    return Body(file, size)


def _decode(head: Head, stream: IO[bytes], declared: str, chain: Chain | None, file: IO[bytes]) -> Body:
    length = _length(head, "x-amz-decoded-content-length")
    if length is None:
        raise _no_length("A body in chunks needs x-amz-decoded-content-length, its number of bytes after decoding.")
    announced = _announced(head) if STREAMING[declared] else None
    decoder = Decoder(io.BufferedReader(_framed(head, stream)), length, chain, announced)
    for block in decoder:
        file.write(block)
    file.seek(0)
    return Body(file, length, decoder.trailers)


def _framed(head: Head, stream: IO[bytes]) -> io.RawIOBase:
    coding = head.one("transfer-encoding").lower()
    if not head.values("transfer-encoding"):
        return Bounded(stream, _length(head, "content-length") or 0)
    if coding != "chunked" or head.values("content-length"):
        raise ServiceError("InvalidRequest", "Transfer-Encoding must be chunked, without a Content-Length.")
    return Dechunked(stream)


def _announced(head: Head) -> list[str]:
    names = [name.strip().lower() for name in head.one("x-amz-trailer").split(",") if name.strip()]
    for name in names:
        if not _TRAILER_NAME.fullmatch(name):
            raise ServiceError("InvalidRequest", "The value specified in the x-amz-trailer header is not supported")
    return names


def _length(head: Head, name: str) -> int | None:
    values = head.values(name)
    if not values:
        return None
    # No disk has space for a number of twenty digits, and Python refuses to parse numbers of thousands of digits.
    text = values[0].strip()
    if len(values) > 1 or len(text) > 19 or not text.isdecimal() or not text.isascii():
        raise ServiceError("InvalidRequest", f"The {name} is not a number.")
    return int(text)


def _no_length(message: str) -> ServiceError:
    return ServiceError("MissingContentLength", message, 411)


def _drop_chunked_encoding(environ: dict[str, Any]) -> None:
    """Remove `aws-chunked` from Content-Encoding: it is an encoding of the request, not of the object."""
    codings = [one.strip() for one in environ.pop("HTTP_CONTENT_ENCODING", "").split(",")]
    of_object = [one for one in codings if one and one.lower() != "aws-chunked"]
    if of_object:
        environ["HTTP_CONTENT_ENCODING"] = ",".join(of_object)


def chain_of(claim: Claim, declared: str, key: bytes) -> Chain | None:
    if declared in STREAMING and "UNSIGNED" not in declared:
        return Chain(key, claim.timestamp, claim.scope, claim.signature)
    return None


def describe_whole(environ: dict[str, Any], body: Body, declared: str) -> None:
    """Change the headers to those of a request whose body is sent in one piece."""
    environ["CONTENT_LENGTH"] = str(body.size)
    for name in ("HTTP_TRANSFER_ENCODING", "wsgi.input_terminated"):
        environ.pop(name, None)
    if declared in STREAMING:
        _drop_chunked_encoding(environ)
        for name in ("HTTP_X_AMZ_TRAILER", "HTTP_X_AMZ_DECODED_CONTENT_LENGTH", "HTTP_X_AMZ_CONTENT_SHA256"):
            environ.pop(name, None)
