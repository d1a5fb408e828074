"""Every error of an object request is an XML document of S3; other services use their own forms."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.services.cloud import BUCKET, Cloud, client_of
from tests.support.services.raw_requests import STOP, TARGET, Wire

REQUEST = re.compile(r"[0-9A-F]{16}")


@pytest.fixture
def wire(shared_cloud: Cloud) -> Wire:
    return Wire(shared_cloud)


def refused(call: Callable[..., Any], **parameters: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return dict(caught.value.response)


def test_error_names_missing_bucket(shared_cloud: Cloud) -> None:
    s3, names = shared_cloud.s3, {"Bucket": "no-such-bucket"}
    calls: list[tuple[Any, dict[str, Any]]] = [
        (s3.list_objects_v2, {}), (s3.get_object, {"Key": "k"}), (s3.put_object, {"Key": "k", "Body": b"x"}),
        (s3.create_multipart_upload, {"Key": "k"}), (s3.delete_bucket, {}), (s3.get_bucket_location, {}),
    ]  # fmt: skip
    for call, more in calls:
        error = refused(call, **names, **more)["Error"]
        assert (error["Code"], error["BucketName"]) == ("NoSuchBucket", "no-such-bucket")
        assert error["Message"] == "The specified bucket does not exist"


@pytest.mark.parametrize("key", ["no/such", "<&>'\"", "new\nline", "\x01"])
def test_error_names_missing_key(shared_cloud: Cloud, key: str) -> None:
    error = refused(shared_cloud.s3.get_object, Bucket=BUCKET, Key=key)["Error"]
    assert (error["Code"], error["Key"]) == ("NoSuchKey", key.replace("\x01", "\ufffd"))


def test_a_refusal_of_head_has_no_body(wire: Wire) -> None:
    wire.method, wire.path, wire.body = "HEAD", f"/{BUCKET}/no-such-key", b""
    status, headers, body = wire.sign().send_for_headers()
    assert (status, body) == (404, b"")
    assert REQUEST.fullmatch(headers["x-amz-request-id"])


def test_answers_have_a_request_identifier(shared_cloud: Cloud) -> None:
    first, second = (shared_cloud.s3.list_buckets()["ResponseMetadata"]["RequestId"] for _ in range(2))
    assert first != second
    assert all(map(REQUEST.fullmatch, (first, second)))
    answer = refused(shared_cloud.s3.get_object, Bucket=BUCKET, Key="none")
    assert REQUEST.fullmatch(answer["ResponseMetadata"]["RequestId"])
    assert answer["ResponseMetadata"]["HostId"]
    of_sagemaker = client_of(shared_cloud.endpoint, "sagemaker").list_training_jobs()
    assert REQUEST.fullmatch(of_sagemaker["ResponseMetadata"]["RequestId"])


def _unsigned(wire: Wire) -> None:
    wire.headers = {"Host": wire.netloc}


def _wrong_signature(wire: Wire) -> None:
    wire.sign(secret_key="guessed")


def _other_host(wire: Wire) -> None:
    wire.sign().headers["Host"] = "attacker.example"


def _no_hash(wire: Wire) -> None:
    del wire.sign().headers["X-Amz-Content-SHA256"]


def _not_implemented(wire: Wire) -> None:
    wire.path += "?versions"
    wire.sign()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", f"/{BUCKET}", f"/{BUCKET}/key", f"/{BUCKET}?list-type=2"])
@pytest.mark.parametrize("change", [_unsigned, _wrong_signature, _other_host, _no_hash])
def test_every_s3_error_is_an_xml_document(wire: Wire, method: str, path: str, change: Callable[[Wire], None]) -> None:
    wire.method, wire.path, wire.body = method, path, b""
    change(wire)
    status, headers, body = wire.send_for_headers()
    root = ET.fromstring(body)
    found = {element.tag: element.text for element in root}
    assert (root.tag, headers["content-type"]) == ("Error", "application/xml")
    assert 400 <= status < 500
    assert found["Code"] in {"AccessDenied", "SignatureDoesNotMatch", "MissingSecurityHeader"}
    assert found["Message"]
    assert found["Resource"] == path.partition("?")[0]
    assert found["RequestId"] == headers["x-amz-request-id"]


def test_not_implemented_error_is_an_xml_document(wire: Wire) -> None:
    wire.method, wire.body = "GET", b""
    _not_implemented(wire)
    status, body = wire.send()
    assert (status, ET.fromstring(body).findtext("Code")) == (501, "NotImplemented")


def test_error_for_wrong_signature_has_the_signed_text(wire: Wire) -> None:
    _wrong_signature(wire)
    root = ET.fromstring(wire.send()[1])
    assert root.findtext("AWSAccessKeyId") == wire.cloud.endpoint.access_key
    assert str(root.findtext("StringToSign")).startswith("AWS4-HMAC-SHA256\n")
    assert str(root.findtext("CanonicalRequest")).startswith(f"PUT\n/{BUCKET}/object\n")
    assert wire.cloud.endpoint.secret_key.encode() not in wire.send()[1]


@pytest.mark.parametrize("numbers", [(2, 1), (1, 1), (1, 3, 2)])
def test_parts_out_of_order_are_refused(shared_cloud: Cloud, numbers: tuple[int, ...]) -> None:
    s3, place = shared_cloud.s3, {"Bucket": BUCKET, "Key": "parts/of-order"}
    upload = {**place, "UploadId": s3.create_multipart_upload(**place)["UploadId"]}
    size = 5 << 20  # S3 refuses smaller parts, except the last one
    bodies = {number: bytes([number]) * size for number in numbers}
    tags = {one: s3.upload_part(**upload, PartNumber=one, Body=body)["ETag"] for one, body in bodies.items()}
    parts = [{"PartNumber": number, "ETag": tags[number]} for number in numbers]
    error = refused(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})["Error"]
    assert error["Code"] == "InvalidPartOrder"
    assert error["Message"].startswith("The list of parts was not in ascending order.")
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix=place["Key"])
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [parts[-1]]})  # the upload is as before
    s3.delete_object(**place)


def test_deletion_of_more_than_1000_keys_is_refused(shared_cloud: Cloud) -> None:
    keys = [{"Key": f"many/{number}"} for number in range(1001)]
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="many/0", Body=b"")
    error = refused(shared_cloud.s3.delete_objects, Bucket=BUCKET, Delete={"Objects": keys})["Error"]
    assert error["Code"] == "MalformedXML"
    assert shared_cloud.s3.list_objects_v2(Bucket=BUCKET, Prefix="many/")["KeyCount"] == 1
    assert len(shared_cloud.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": keys[:1000]})["Deleted"]) == 1000


@pytest.mark.parametrize("call", ["put_object", "create_multipart_upload", "copy_object"])
def test_metadata_above_2048_bytes_is_refused(shared_cloud: Cloud, call: str) -> None:
    s3, place = shared_cloud.s3, {"Bucket": BUCKET, "Key": "metadata/key"}
    s3.put_object(**place, Body=b"", Metadata={"name": "x" * 2000, "other": "y" * 39})
    more = {"CopySource": place, "MetadataDirective": "REPLACE"} if call == "copy_object" else {}
    error = refused(getattr(s3, call), **place, **more, Metadata={"name": "x" * 2000, "other": "y" * 40})["Error"]
    assert (error["Code"], error["Size"], error["MaxSizeAllowed"]) == ("MetadataTooLarge", "2049", "2048")
    assert len(s3.head_object(**place)["Metadata"]["other"]) == 39
    s3.delete_object(**place)


def test_errors_of_other_services_are_json(wire: Wire) -> None:
    wire.method, wire.path, wire.body, wire.headers = "POST", "/", STOP, {"Host": wire.netloc, **TARGET}
    status, headers, body = wire.send_for_headers()
    assert (status, json.loads(body)["__type"]) == (403, "AccessDenied")
    assert REQUEST.fullmatch(headers["x-amzn-requestid"])
    wire.path = "/_role/unknown"
    assert json.loads(wire.send()[1])["__type"] == "AccessDenied"
