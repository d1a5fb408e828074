"""Bodies in chunks over HTTP: the object has the decoded bytes, or there is no object."""

from __future__ import annotations

import base64
import os
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.services.chunked import (
    EMPTY,
    SIGNED,
    SIGNED_TRAILER,
    UNSIGNED_TRAILER,
    Signer,
    unsigned_chunks,
    write,
)
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.presigned import code
from tests.support.services.raw_requests import Wire, unchanged

__all__ = ["unchanged"]

CHUNKS = [b"1" * 8192, b"2" * 70_000, b"3"]
BODY = b"".join(CHUNKS)
FORMS = [SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER]


def crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def trailers_of(form: str, data: bytes = BODY) -> dict[str, str]:
    return {} if form == SIGNED else {"x-amz-checksum-crc32": crc32(data)}


@pytest.fixture
def wire(shared_cloud: Cloud) -> Wire:
    wire = Wire(shared_cloud)
    wire.path = f"/{BUCKET}/streamed"
    shared_cloud.s3.delete_object(Bucket=BUCKET, Key="streamed")
    return wire


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("encoding", ["aws-chunked", "aws-chunked,gzip", "gzip, aws-chunked", "gzip"])
def test_decoded_bytes_of_chunks_are_stored(wire: Wire, form: str, encoding: str) -> None:
    wire.headers["Content-Encoding"] = encoding
    write(wire, form, CHUNKS, trailers_of(form))
    status, headers, _ = wire.send_for_headers()
    assert status == 200
    answer = wire.cloud.s3.get_object(Bucket=BUCKET, Key="streamed")
    assert (answer["Body"].read(), answer["ETag"]) == (BODY, headers["etag"])
    assert answer.get("ContentEncoding") == (None if encoding == "aws-chunked" else "gzip")
    assert headers.get("x-amz-checksum-crc32") == trailers_of(form).get("x-amz-checksum-crc32")


@pytest.mark.parametrize("form", FORMS)
def test_empty_body_in_chunks_is_stored(wire: Wire, form: str) -> None:
    write(wire, form, [], trailers_of(form, b""))
    assert wire.send()[0] == 200
    assert wire.cloud.object("streamed") == b""


@pytest.mark.parametrize("form", FORMS)
def test_chunked_transfer_coding_is_decoded(wire: Wire, form: str) -> None:
    """As clients send what they do not know the length of."""
    write(wire, form, CHUNKS, trailers_of(form))
    pieces = [wire.body[at : at + 10_000] for at in range(0, len(wire.body), 10_000)]
    wire.body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    wire.headers["Transfer-Encoding"] = "chunked"
    assert wire.send()[0] == 200
    assert wire.cloud.object("streamed") == BODY


def test_trailing_checksum_is_stored(wire: Wire) -> None:
    write(wire, UNSIGNED_TRAILER, CHUNKS, trailers_of(UNSIGNED_TRAILER))
    assert wire.send()[0] == 200
    described = wire.cloud.s3.head_object(Bucket=BUCKET, Key="streamed", ChecksumMode="ENABLED")
    assert described["ChecksumCRC32"] == crc32(BODY)


@pytest.mark.parametrize("form", [SIGNED_TRAILER, UNSIGNED_TRAILER])
def test_a_wrong_trailing_checksum_is_refused(wire: Wire, form: str, unchanged: None) -> None:
    write(wire, form, CHUNKS, trailers_of(form, b"other"))
    status, body = wire.send()
    assert (status, code(body)) == (400, "BadDigest")


def test_parts_of_multipart_upload_may_be_in_chunks(wire: Wire) -> None:
    names = {"Bucket": BUCKET, "Key": "streamed parts"}
    upload = wire.cloud.s3.create_multipart_upload(**names)["UploadId"]
    wire.path = f"/{BUCKET}/streamed%20parts?partNumber=1&uploadId={upload}"
    write(wire, SIGNED, CHUNKS)
    status, headers, _ = wire.send_for_headers()
    assert status == 200
    parts = {"Parts": [{"PartNumber": 1, "ETag": headers["etag"]}]}
    wire.cloud.s3.complete_multipart_upload(**names, UploadId=upload, MultipartUpload=parts)
    assert wire.cloud.object("streamed parts") == BODY


def _change_data(wire: Wire) -> None:
    wire.body = wire.body.replace(b"22222\r\n", b"22223\r\n")


def _change_signature(wire: Wire) -> None:
    head, mark, tail = wire.body.rpartition(b"chunk-signature=")
    wire.body = head + mark + b"0" * 64 + tail[64:]


def _cut(wire: Wire) -> None:
    wire.body = wire.body[:-10]


def _cut_and_end(wire: Wire) -> None:
    wire.body = wire.body[: wire.body.rindex(b"0;")] + b"\r\n"


def _add(wire: Wire) -> None:
    wire.body += b"more"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_change_data, "SignatureDoesNotMatch"),
        (_change_signature, "SignatureDoesNotMatch"),
        (_cut, "IncompleteBody"),
        (_cut_and_end, "IncompleteBody"),
        (_add, "IncompleteBody"),
    ],
)
def test_a_changed_body_is_refused(wire: Wire, change: Callable[[Wire], None], expected: str, unchanged: None) -> None:
    write(wire, SIGNED, CHUNKS)
    change(wire)
    status, body = wire.send()
    assert (status, code(body)) == (403 if expected.startswith("Sig") else 400, expected)


def test_a_wrong_signature_of_trailers_is_refused(wire: Wire, unchanged: None) -> None:
    write(wire, SIGNED_TRAILER, CHUNKS, trailers_of(SIGNED_TRAILER))
    head, mark, _ = wire.body.rpartition(b"x-amz-trailer-signature:")
    wire.body = head + mark + b"0" * 64 + b"\r\n\r\n"
    status, body = wire.send()
    assert (status, code(body)) == (403, "SignatureDoesNotMatch")


def test_chunks_that_are_too_small_are_refused(wire: Wire, unchanged: None) -> None:
    write(wire, UNSIGNED_TRAILER, [b"12", b"3"], trailers_of(UNSIGNED_TRAILER, b"123"))
    status, body = wire.send()
    assert (status, code(body)) == (403, "InvalidChunkSizeError")
    assert b"<Chunk>2</Chunk><BadChunkSize>2</BadChunkSize>" in body


@pytest.mark.parametrize(
    ("length", "status", "expected"),
    [("3", 400, "IncompleteBody"), ("1000000", 400, "IncompleteBody"), ("many", 400, "InvalidRequest"),
     ("9" * 50, 400, "InvalidRequest")],
)  # fmt: skip
def test_another_decoded_length_is_refused(
    wire: Wire, length: str, status: int, expected: str, unchanged: None
) -> None:
    Signer(wire, UNSIGNED_TRAILER, length)
    wire.body = unsigned_chunks(CHUNKS, {})
    answered, body = wire.send()
    assert (answered, code(body)) == (status, expected)


def test_body_in_chunks_without_decoded_length_is_refused(wire: Wire, unchanged: None) -> None:
    Signer(wire, UNSIGNED_TRAILER, None)
    wire.body = unsigned_chunks(CHUNKS, {})
    status, body = wire.send()
    assert (status, code(body)) == (411, "MissingContentLength")


def test_a_connection_that_ends_within_the_body_stores_nothing(wire: Wire, unchanged: None) -> None:
    write(wire, SIGNED, CHUNKS)
    host, _, port = wire.netloc.partition(":")
    fields = {"Content-Length": str(len(wire.body)), **wire.headers}
    head = f"PUT {wire.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + b"\r\n" + wire.body[:50_000])
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert code(answer) == "IncompleteBody"


def test_error_names_unknown_form_of_body(wire: Wire, unchanged: None) -> None:
    Signer(wire, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "3")
    status, body = wire.send()
    assert (status, code(body), b"ECDSA" in body) == (501, "NotImplemented", True)


@pytest.mark.parametrize("trailer", ["x-amz-meta-a", "host", "x-amz-checksum-crc32,x-amz-meta-b"])
def test_trailers_other_than_checksums_are_refused(wire: Wire, trailer: str, unchanged: None) -> None:
    Signer(wire, UNSIGNED_TRAILER, "3", [trailer])
    wire.body = unsigned_chunks([b"123"], {trailer: "x"})
    status, body = wire.send()
    assert (status, code(body)) == (400, "InvalidRequest")


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", ""])
def test_another_transfer_coding_is_refused(wire: Wire, coding: str, unchanged: None) -> None:
    write(wire, SIGNED, CHUNKS)
    wire.headers["Transfer-Encoding"] = coding
    status, body = wire.send()
    assert (status, code(body)) == (400, "InvalidRequest")


def test_body_in_one_piece_without_length_is_refused(wire: Wire, unchanged: None) -> None:
    wire.body = b""
    wire.sign()
    wire.body = b"0\r\n\r\n"
    wire.headers["Transfer-Encoding"] = "chunked"
    status, body = wire.send()
    assert (status, code(body), EMPTY in wire.headers["X-Amz-Content-SHA256"]) == (411, "MissingContentLength", True)


def test_the_memory_of_the_server_does_not_grow_with_a_body(wire: Wire) -> None:
    def peak() -> int:
        """Bytes of memory that the server had at most so far."""
        status = Path(f"/proc/{wire.cloud.endpoint.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    size = 160 << 20
    data = os.urandom(1 << 20) * (size >> 20)
    before = peak()
    write(wire, SIGNED_TRAILER, [data], trailers_of(SIGNED_TRAILER, data))
    assert wire.send()[0] == 200
    assert peak() - before < size // 4
    assert wire.cloud.s3.head_object(Bucket=BUCKET, Key="streamed")["ContentLength"] == size
