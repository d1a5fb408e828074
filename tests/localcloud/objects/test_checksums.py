"""Digests that clients send for their bodies are verified, stored and returned."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.services.s3 import digests
from tests.support.services.cloud import BUCKET, Cloud, kill
from tests.support.services.presigned import code
from tests.support.services.raw_requests import Wire, unchanged

__all__ = ["unchanged"]

CHECK = b"123456789"
#: The digests of `CHECK`: check values of the catalogue of CRCs, and those of hashlib.
KNOWN = {
    "CRC32": "cbf43926",
    "CRC32C": "e3069283",
    "CRC64NVME": "ae8b14860a799888",
    "SHA1": hashlib.sha1(CHECK).hexdigest(),
    "SHA256": hashlib.sha256(CHECK).hexdigest(),
    "SHA512": hashlib.sha512(CHECK).hexdigest(),
    "MD5": hashlib.md5(CHECK).hexdigest(),
}
MiB = 1 << 20


def encoded(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


@pytest.mark.parametrize("algorithm", KNOWN)
def test_digest_of_check_value_is_known(algorithm: str) -> None:
    assert digests.of_blocks(algorithm, [CHECK[:4], CHECK[4:]]).value == encoded(KNOWN[algorithm])


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_a_crc_does_not_depend_on_the_blocks(data: bytes, at: int) -> None:
    whole = digests.of_blocks("CRC32", [data]).value
    assert digests.of_blocks("CRC32", [data[:at], data[at:]]).value == whole
    assert base64.b64decode(whole) == zlib.crc32(data).to_bytes(4, "big")


@pytest.fixture
def wire(shared_cloud: Cloud) -> Iterator[Wire]:
    wire = Wire(shared_cloud)
    wire.path, wire.body = f"/{BUCKET}/sums/object", CHECK
    yield wire
    shared_cloud.s3.delete_object(Bucket=BUCKET, Key="sums/object")


@pytest.mark.parametrize("algorithm", KNOWN)
@pytest.mark.parametrize("names_algorithm", [True, False])
def test_checksum_is_verified_stored_and_returned(wire: Wire, algorithm: str, names_algorithm: bool) -> None:
    header = f"x-amz-checksum-{algorithm.lower()}"
    wire.headers = {header: encoded(KNOWN[algorithm])}
    if names_algorithm:
        wire.headers["x-amz-sdk-checksum-algorithm"] = algorithm
    status, headers, _ = wire.sign().send_for_headers()
    assert (status, headers[header], headers["x-amz-checksum-type"]) == (200, encoded(KNOWN[algorithm]), "FULL_OBJECT")
    for method in ("GET", "HEAD"):
        for mode, expected in (({}, None), ({"x-amz-checksum-mode": "ENABLED"}, encoded(KNOWN[algorithm]))):
            wire.method, wire.headers, wire.body = method, dict(mode), b""
            assert wire.sign().send_for_headers()[1].get(header) == expected
    wire.method, wire.headers = "GET", {"x-amz-checksum-mode": "ENABLED", "Range": "bytes=0-3"}
    status, headers, body = wire.sign().send_for_headers()
    assert (status, body, headers.get(header)) == (206, CHECK[:4], None)


@pytest.mark.parametrize("algorithm", KNOWN)
@pytest.mark.parametrize("of_part", [False, True])
def test_wrong_checksum_is_refused_and_stores_nothing(
    wire: Wire, algorithm: str, of_part: bool, unchanged: None
) -> None:
    if of_part:
        upload = wire.cloud.s3.create_multipart_upload(Bucket=BUCKET, Key="sums/object")["UploadId"]
        wire.path += f"?partNumber=1&uploadId={upload}"
    wire.headers = {f"x-amz-checksum-{algorithm.lower()}": encoded(KNOWN[algorithm])}
    wire.body = CHECK.replace(b"9", b"8")
    status, body = wire.sign().send()
    assert (status, code(body)) == (400, "BadDigest")
    assert f"The {algorithm} you specified".encode() in body
    if of_part:
        parts = wire.cloud.s3.list_parts(Bucket=BUCKET, Key="sums/object", UploadId=upload)
        assert "Parts" not in parts
        wire.cloud.s3.abort_multipart_upload(Bucket=BUCKET, Key="sums/object", UploadId=upload)


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        ({"x-amz-checksum-crc32": "AAA="}, 400, "InvalidRequest"),
        ({"x-amz-checksum-crc32": "not base64"}, 400, "InvalidRequest"),
        ({"x-amz-checksum-crc32": ""}, 400, "InvalidRequest"),
        ({"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-sha1": "AAAAAA=="}, 400, "InvalidRequest"),
        ({"x-amz-sdk-checksum-algorithm": "CRC32"}, 400, "InvalidRequest"),
        ({"x-amz-sdk-checksum-algorithm": "SHA1", "x-amz-checksum-crc32": "y/Q5Jg=="}, 400, "InvalidRequest"),
        ({"x-amz-checksum-xxhash64": "AAAAAAAAAAA="}, 501, "NotImplemented"),
        ({"Content-MD5": "not base64"}, 400, "InvalidDigest"),
        ({"Content-MD5": encoded("00" * 15)}, 400, "InvalidDigest"),
        ({"Content-MD5": encoded("00" * 16)}, 400, "BadDigest"),
    ],
)
def test_a_malformed_or_wrong_digest_is_refused(
    wire: Wire, headers: dict[str, str], status: int, expected: str, unchanged: None
) -> None:
    wire.headers = dict(headers)
    answered, body = wire.sign().send()
    assert (answered, code(body)) == (status, expected)


def test_the_digest_of_a_deletion_is_verified(wire: Wire) -> None:
    wire.cloud.s3.put_object(Bucket=BUCKET, Key="sums/object", Body=b"x")
    wire.method, wire.path = "POST", f"/{BUCKET}?delete"
    wire.body = b"<Delete><Object><Key>sums/object</Key></Object></Delete>"
    for header in ({"Content-MD5": encoded("00" * 16)}, {"x-amz-checksum-crc32": "AAAAAA=="}):
        wire.headers = dict(header)
        assert code(wire.sign().send()[1]) == "BadDigest"
    assert wire.cloud.object("sums/object") == b"x"
    wire.headers = {"Content-MD5": encoded(hashlib.md5(wire.body).hexdigest())}
    assert wire.sign().send()[0] == 200
    assert wire.cloud.keys("sums/object") == []


def upload(cloud: Cloud, key: str, bodies: list[bytes], **options: Any) -> tuple[str, list[dict[str, Any]]]:
    names = {"Bucket": BUCKET, "Key": key}
    identifier = cloud.s3.create_multipart_upload(**names, **options)["UploadId"]
    parts = []
    for number, body in enumerate(bodies, 1):
        algorithm = options.get("ChecksumAlgorithm")
        # botocore does not compute all algorithms.
        checksum = {f"Checksum{algorithm}": digests.of_blocks(algorithm, [body]).value} if algorithm else {}
        part = cloud.s3.upload_part(**names, UploadId=identifier, PartNumber=number, Body=body, **checksum)
        sums = {name: value for name, value in part.items() if name in {f"Checksum{one}" for one in KNOWN}}
        parts.append({"PartNumber": number, "ETag": part["ETag"], **sums})
    return identifier, parts


BODIES = [b"1" * (5 * MiB), b"2" * 1000]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("CRC32", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC32C", "COMPOSITE"), ("CRC32", "FULL_OBJECT"),
     ("CRC64NVME", "FULL_OBJECT")],
)  # fmt: skip
def test_multipart_upload_has_composite_or_full_checksum(shared_cloud: Cloud, algorithm: str, kind: str) -> None:
    key = f"sums/{algorithm}/{kind}"
    options = {"ChecksumAlgorithm": algorithm, "ChecksumType": kind}
    identifier, parts = upload(shared_cloud, key, BODIES, **options)
    name = f"Checksum{algorithm}"
    assert [part[name] for part in parts] == [digests.of_blocks(algorithm, [body]).value for body in BODIES]
    done = shared_cloud.s3.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=identifier, MultipartUpload={"Parts": parts}
    )
    joined = b"".join(BODIES if kind == "FULL_OBJECT" else [base64.b64decode(part[name]) for part in parts])
    number = "-2" if kind == "COMPOSITE" else ""
    expected = digests.of_blocks(algorithm, [joined]).value + number
    assert (done[name], done["ChecksumType"]) == (expected, kind)
    described = shared_cloud.s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert (described[name], described["ChecksumType"]) == (expected, kind)
    answer = shared_cloud.s3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert (answer["Body"].read(), answer[name]) == (b"".join(BODIES), expected)
    copied = shared_cloud.s3.copy_object(Bucket=BUCKET, Key="sums/copy", CopySource={"Bucket": BUCKET, "Key": key})
    assert copied["ResponseMetadata"]["HTTPStatusCode"] == 200
    described = shared_cloud.s3.head_object(Bucket=BUCKET, Key="sums/copy", ChecksumMode="ENABLED")
    whole = digests.of_blocks(algorithm, BODIES).value
    assert (described[name], described["ChecksumType"]) == (whole, "FULL_OBJECT")


def test_a_completion_with_other_checksums_is_refused(shared_cloud: Cloud) -> None:
    identifier, parts = upload(shared_cloud, "sums/parts", BODIES, ChecksumAlgorithm="CRC32")
    names = {"Bucket": BUCKET, "Key": "sums/parts", "UploadId": identifier}
    wrong = [{**parts[0], "ChecksumCRC32": "AAAAAA=="}, parts[1]]
    with pytest.raises(ClientError, match="InvalidPart"):
        shared_cloud.s3.complete_multipart_upload(**names, MultipartUpload={"Parts": wrong})
    with pytest.raises(ClientError, match="BadDigest"):
        shared_cloud.s3.complete_multipart_upload(**names, MultipartUpload={"Parts": parts}, ChecksumCRC32="AAAAAA==")
    assert shared_cloud.keys("sums/parts") == []
    shared_cloud.s3.complete_multipart_upload(**names, MultipartUpload={"Parts": parts})
    assert shared_cloud.object("sums/parts") == b"".join(BODIES)


def test_a_part_of_another_algorithm_is_refused(shared_cloud: Cloud) -> None:
    identifier, _ = upload(shared_cloud, "sums/other", [], ChecksumAlgorithm="SHA256")
    names = {"Bucket": BUCKET, "Key": "sums/other", "UploadId": identifier}
    with pytest.raises(ClientError, match="expected checksum Type: sha256, actual checksum Type: crc32"):
        shared_cloud.s3.upload_part(**names, PartNumber=1, Body=b"x", ChecksumAlgorithm="CRC32")
    shared_cloud.s3.abort_multipart_upload(**names)


def test_copy_can_have_another_checksum_algorithm(shared_cloud: Cloud) -> None:
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="sums/source", Body=CHECK)
    source = {"Bucket": BUCKET, "Key": "sums/source"}
    shared_cloud.s3.copy_object(Bucket=BUCKET, Key="sums/target", CopySource=source, ChecksumAlgorithm="SHA256")
    described = shared_cloud.s3.head_object(Bucket=BUCKET, Key="sums/target", ChecksumMode="ENABLED")
    assert described["ChecksumSHA256"] == encoded(KNOWN["SHA256"])


def test_checksums_survive_a_killed_server(open_cloud: Callable[[], Cloud]) -> None:
    first = open_cloud()
    first.s3.put_object(Bucket=BUCKET, Key="one", Body=CHECK, ChecksumAlgorithm="SHA256")
    identifier, parts = upload(first, "two", [b"x"], ChecksumAlgorithm="CRC32")
    first.s3.complete_multipart_upload(Bucket=BUCKET, Key="two", UploadId=identifier, MultipartUpload={"Parts": parts})
    described = [first.s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED") for key in ("one", "two")]
    kill(first.endpoint.pid)
    second = open_cloud()
    for key, before in zip(("one", "two"), described, strict=True):
        after = second.s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        assert {name: value for name, value in after.items() if name.startswith("Checksum")} == {
            name: value for name, value in before.items() if name.startswith("Checksum")
        }
    assert (described[0]["ChecksumSHA256"], described[1]["ChecksumType"]) == (encoded(KNOWN["SHA256"]), "COMPOSITE")
