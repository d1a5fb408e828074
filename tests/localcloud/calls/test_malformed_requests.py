"""A signed but malformed request is refused as such; it is not an error of the server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from smdp_launch.localcloud.protocol.cbor import decode
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.raw_requests import Wire

OBJECT, COPY = f"/{BUCKET}/object", {"x-amz-copy-source": f"/{BUCKET}/object"}
DELETES = [
    b"", b"<", b"\xff\xfe", b"{}", b"<Other/>", b"<Delete>", b"<Delete></Delete>", b"<Delete>a</Delete>",
    b"<Delete><Object></Object></Delete>", b"<Delete><Object><Key></Key></Object></Delete>",
    b"<Delete><Object><Key>a</Key></Object><Object/></Delete>",
    b"<!DOCTYPE x [<!ENTITY a 'b'>]><Delete><Object><Key>&a;</Key></Object></Delete>", b"<a>" * 1000,
]  # fmt: skip
PARTS = "<CompleteMultipartUpload>{}</CompleteMultipartUpload>"
COMPLETIONS = [
    b"", b"<", b"\xff", b"<x/>", b"<CompleteMultipartUpload/>", *(
        PARTS.format(one).encode() for one in (
            "<Part></Part>", "<Part>a</Part>", "<Part><PartNumber>1</PartNumber></Part>", "<Part><ETag>a</ETag></Part>",
            "<Part><PartNumber>x</PartNumber><ETag>a</ETag></Part>",
            "<Part><PartNumber>7</PartNumber><ETag>a</ETag></Part>",
            f"<Part><PartNumber>{'9' * 30}</PartNumber><ETag>a</ETag></Part>",
        )
    ),
]  # fmt: skip
NUMBERS = ["", "abc", "-1", "1.5", "9" * 5000, "%D9%A1"]


@pytest.fixture
def wire(shared_cloud: Cloud) -> Iterator[Wire]:
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="object", Body=b"content")
    yield Wire(shared_cloud)


def answered(wire: Wire, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
    wire.method, wire.path, wire.body, wire.headers = method, path, body, dict(headers or {})
    return wire.sign().send()[0]


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize(
    "path",
    [f"/{BUCKET}?max-keys=", f"/{BUCKET}?list-type=2&max-keys=", "/?max-buckets=", f"/{BUCKET}?uploads&max-uploads=",
     f"{OBJECT}?partNumber="],
)  # fmt: skip
def test_parameter_that_is_not_a_number_is_refused(wire: Wire, path: str, value: str) -> None:
    assert answered(wire, "GET", path + value) == 400


@pytest.mark.parametrize("number", [*NUMBERS, "0", "10001"])
def test_part_with_invalid_number_is_refused(wire: Wire, number: str) -> None:
    upload = wire.cloud.s3.create_multipart_upload(Bucket=BUCKET, Key="object")["UploadId"]
    path = f"{OBJECT}?uploadId={upload}&partNumber={number}"
    assert [answered(wire, "PUT", path, b"part"), answered(wire, "PUT", path, headers=COPY)] == [400, 400]
    assert answered(wire, "PUT", f"{OBJECT}?uploadId={upload}", b"part") == 400
    assert answered(wire, "GET", f"{OBJECT}?uploadId={upload}&max-parts=x") == 400
    assert answered(wire, "GET", f"{OBJECT}?uploadId={upload}&part-number-marker=x") == 400
    wire.cloud.s3.abort_multipart_upload(Bucket=BUCKET, Key="object", UploadId=upload)


@pytest.mark.parametrize("body", DELETES)
def test_deletion_without_keys_is_refused(wire: Wire, body: bytes) -> None:
    assert answered(wire, "POST", f"/{BUCKET}?delete", body) == 400
    assert wire.cloud.object("object") == b"content"


@pytest.mark.parametrize("body", COMPLETIONS)
def test_completion_without_parts_is_refused(wire: Wire, body: bytes) -> None:
    upload = wire.cloud.s3.create_multipart_upload(Bucket=BUCKET, Key="object")["UploadId"]
    assert answered(wire, "POST", f"{OBJECT}?uploadId={upload}", body) == 400
    wire.cloud.s3.abort_multipart_upload(Bucket=BUCKET, Key="object", UploadId=upload)


def test_unknown_upload_is_not_found(wire: Wire) -> None:
    parts = PARTS.format("<Part><PartNumber>1</PartNumber><ETag>a</ETag></Part>").encode()
    path = f"{OBJECT}?uploadId=none"
    assert answered(wire, "POST", path, parts) == 404
    assert answered(wire, "PUT", f"{path}&partNumber=1", b"part") == 404
    assert answered(wire, "PUT", f"{path}&partNumber=1", headers=COPY) == 404
    assert [answered(wire, method, path) for method in ("GET", "DELETE")] == [404, 404]


@pytest.mark.parametrize(
    "path", [OBJECT, f"/{BUCKET}", "/", f"{OBJECT}?uploads&uploadId=x", f"/{BUCKET}?uploads&delete"]
)
def test_post_without_operation_is_refused(wire: Wire, path: str) -> None:
    assert answered(wire, "POST", path, b"x") == 400


@pytest.mark.parametrize("source", ["", "/", "//", BUCKET, f"/{BUCKET}/", "%ff%fe"])
def test_copy_with_invalid_source_is_refused(wire: Wire, source: str) -> None:
    assert answered(wire, "PUT", f"/{BUCKET}/copy", headers={"x-amz-copy-source": source}) == 400


@pytest.mark.parametrize("body", [b"<", b"x" * 100, b"\xff", b"<a><b/></a>", b"<CreateBucketConfiguration/>"])
def test_bucket_with_malformed_configuration_is_refused(wire: Wire, body: bytes) -> None:
    assert answered(wire, "PUT", "/another-bucket", body) == 400


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", f"/{BUCKET}?list-type=2&continuation-token=abc", {}, 400),
        ("GET", f"{OBJECT}?response-content-type=a%0d%0ab", {}, 400),
        ("GET", f"{OBJECT}?response-content-disposition=%E6%97%A5", {}, 400),
        ("PUT", OBJECT, {"x-amz-acl": "unknown"}, 400),
        ("POST", f"{OBJECT}?uploads", {"x-amz-acl": "unknown"}, 400),
        ("PUT", f"/{BUCKET}/granted", {"x-amz-grant-read": "x"}, 501),
        ("GET", OBJECT, {"If-Modified-Since": "no date"}, 200),
        ("HEAD", OBJECT, {"If-Unmodified-Since": "no date"}, 200),
        ("HEAD", OBJECT, {"If-Unmodified-Since": "Sunday, 06-Nov-94 08:49:37 GMT"}, 412),
        ("GET", OBJECT, {"Range": f"bytes={'9' * 5000}-"}, 200),
    ],
)
def test_malformed_header_or_parameter_gives_its_status(
    wire: Wire, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    assert answered(wire, method, path, headers=headers) == status


def signed(wire: Wire, service: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """As `Wire.sign` for any service."""
    endpoint = wire.cloud.endpoint
    request = AWSRequest(method, endpoint.url + path, {"Host": wire.netloc, **headers}, body)
    request.context["timestamp"] = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    SigV4Auth(Credentials(endpoint.access_key, endpoint.secret_key), service, endpoint.region).add_auth(request)
    wire.method, wire.path, wire.body, wire.headers = method, path, body, dict(request.headers.items())
    return wire.send()


@pytest.mark.parametrize("action", ["DescribeRouteTables", "DescribeVpcEndpoints"])
def test_filter_without_name_is_refused(wire: Wire, action: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, body = signed(wire, "ec2", "POST", "/", f"Action={action}&Filter.1.Value.1=x".encode(), form)
    assert (status, b"InvalidParameterValue" in body) == (400, True)


def test_number_of_thousands_of_digits_is_refused(wire: Wire) -> None:
    path = f"/2015-02-01/file-systems?MaxItems={'9' * 5000}"
    assert signed(wire, "elasticfilesystem", "GET", path, b"", {})[0] == 400


@pytest.mark.parametrize("body", [b"\x7f\x41a\xff", b"\x5f\x61a\xff"])
def test_cbor_string_of_mixed_parts_is_refused(wire: Wire, body: bytes) -> None:
    path = "/service/GraniteServiceVersion20100801/operation/ListMetrics"
    headers = {"smithy-protocol": "rpc-v2-cbor", "Content-Type": "application/cbor"}
    status, answer = signed(wire, "monitoring", "POST", path, body, headers)
    assert (status, decode(answer)["__type"]) == (400, "SerializationException")
