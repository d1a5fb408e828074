"""Presigned URLs of both signature versions do exactly what was signed, for the signed time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from botocore.auth import HmacV1QueryAuth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.presigned import code, presign
from tests.support.services.raw_requests import Wire, unchanged

__all__ = ["unchanged"]

VERSIONS = [None, "s3v4"]  # None is the default of boto3


@pytest.fixture
def wire(shared_cloud: Cloud) -> Wire:
    wire = Wire(shared_cloud)
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="here", Body=b"content")
    wire.headers, wire.body = {"Host": wire.netloc}, b""
    return wire


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key", ["plain", "with space/ü+%2F?&"])
def test_presigned_urls_put_read_and_delete_an_object(wire: Wire, version: str | None, key: str) -> None:
    wire.body = b"by URL"
    assert presign(wire, "put_object", version, Key=key).send()[0] == 200
    assert wire.cloud.object(key) == b"by URL"
    wire.body = b""
    assert presign(wire, "get_object", version, Key=key).send() == (200, b"by URL")
    status, headers, _ = presign(wire, "head_object", version, Key=key).send_for_headers()
    assert (status, headers["content-length"]) == (200, "6")
    assert presign(wire, "delete_object", version, Key=key).send()[0] == 204
    assert wire.cloud.keys(key) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_presigned_urls_upload_parts(wire: Wire, version: str | None) -> None:
    names = {"Bucket": BUCKET, "Key": "of parts"}
    upload = wire.cloud.s3.create_multipart_upload(**names)["UploadId"]
    parts = []
    for number, data in enumerate([b"1" * (5 << 20), b"2"], 1):
        wire.body = data
        presign(wire, "upload_part", version, Key="of parts", UploadId=upload, PartNumber=number)
        status, headers, _ = wire.send_for_headers()
        assert status == 200
        parts.append({"PartNumber": number, "ETag": headers["etag"]})
    wire.cloud.s3.complete_multipart_upload(**names, UploadId=upload, MultipartUpload={"Parts": parts})
    assert wire.cloud.object("of parts") == b"1" * (5 << 20) + b"2"


@pytest.mark.parametrize("version", VERSIONS)
def test_presigned_url_sets_answer_headers_and_lists(wire: Wire, version: str | None) -> None:
    presign(
        wire, "get_object", version, Key="here", ResponseContentType="text/x-signed", ResponseCacheControl="no, x=1"
    )
    _, headers, body = wire.send_for_headers()
    assert (headers["content-type"], headers["cache-control"], body) == ("text/x-signed", "no, x=1", b"content")
    status, body = presign(wire, "list_objects_v2", version, Prefix="he").send()
    assert (status, b"<Key>here</Key>" in body) == (200, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_signed_metadata_and_type_are_stored(wire: Wire, version: str | None) -> None:
    presign(wire, "put_object", version, Key="described", ContentType="text/x-signed", Metadata={"n": "1"})
    wire.body = b"x"
    wire.headers |= {"Content-Type": "text/x-signed", "x-amz-meta-n": "1"}
    assert wire.send()[0] == 200
    described = wire.cloud.s3.head_object(Bucket=BUCKET, Key="described")
    assert (described["ContentType"], described["Metadata"]) == ("text/x-signed", {"n": "1"})


def test_headers_in_query_string_are_applied(wire: Wire) -> None:
    """As the SDKs for JavaScript, Go and Java write them."""
    moved = "x-amz-meta-n=1&x-amz-checksum-crc32={}&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject"
    wire.body = b"123456789"
    by_hand(wire, "PUT", f"/{BUCKET}/moved?{moved.format(quote('y/Q5Jg=='))}")
    assert wire.send()[0] == 200
    described = wire.cloud.s3.head_object(Bucket=BUCKET, Key="moved", ChecksumMode="ENABLED")
    assert (described["Metadata"], described["ChecksumCRC32"]) == ({"n": "1"}, "y/Q5Jg==")
    by_hand(wire, "PUT", f"/{BUCKET}/moved?{moved.format(quote('AAAAAA=='))}")
    status, body = wire.send()
    assert (status, code(body)) == (400, "BadDigest")


def test_headers_in_query_string_of_version_2_are_applied(wire: Wire) -> None:
    by_hand(wire, "PUT", f"/{BUCKET}/moved-2", version=2, **{"x-amz-meta-n": "2", "Content-Type": "text/x-old"})
    wire.body = b"x"
    assert wire.send()[0] == 200
    described = wire.cloud.s3.head_object(Bucket=BUCKET, Key="moved-2")
    assert (described["Metadata"], described["ContentType"]) == ({"n": "2"}, "text/x-old")


def test_a_url_of_a_jobs_role_is_accepted(wire: Wire) -> None:
    """The keys have a session token, and so has the URL."""
    credentials = Credentials(wire.cloud.endpoint.access_key, wire.cloud.endpoint.secret_key, "local")
    for version in (2, 4):
        by_hand(wire, "GET", f"/{BUCKET}/here", version=version, credentials=credentials)
        assert "ecurity-" in wire.path
        assert wire.send() == (200, b"content")


def by_hand(
    wire: Wire,
    method: str,
    path: str,
    *,
    version: int = 4,
    seconds: int = 60,
    credentials: Credentials | None = None,
    now: str = "",
    **headers: str,
) -> Wire:
    """Presign with botocore's signers."""
    endpoint = wire.cloud.endpoint
    request = AWSRequest(method, endpoint.url + path, headers)
    request.context["timestamp"] = now or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    credentials = credentials or Credentials(endpoint.access_key, endpoint.secret_key)
    if version == 2:
        HmacV1QueryAuth(credentials, expires=seconds).add_auth(request)
    else:
        signer = S3SigV4QueryAuth(credentials, "s3", endpoint.region, expires=seconds)
        signer._modify_request_before_signing(request)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        signer._inject_signature_to_request(request, signer.signature(text, request))
    wire.method, wire.path = method, request.url.removeprefix(endpoint.url)
    return wire


def at(seconds: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + seconds))


@pytest.mark.parametrize(("age", "seconds"), [(62, 60), (700_000, 604_800), (5, 1)])
def test_an_expired_url_is_refused(wire: Wire, age: int, seconds: int, unchanged: None) -> None:
    status, body = by_hand(wire, "GET", f"/{BUCKET}/here", seconds=seconds, now=at(-age)).send()
    assert (status, code(body)) == (403, "AccessDenied")
    assert b"<Message>Request has expired</Message>" in body
    assert f"<X-Amz-Expires>{seconds}</X-Amz-Expires>".encode() in body
    assert re.search(rb"<Expires>20..-..-..T..:..:..Z</Expires><ServerTime>20..-", body)


def test_an_expired_url_of_version_2_is_refused(wire: Wire, unchanged: None) -> None:
    status, body = by_hand(wire, "GET", f"/{BUCKET}/here", version=2, seconds=-2).send()
    assert (status, code(body), b"Request has expired" in body) == (403, "AccessDenied", True)


def test_url_is_valid_for_up_to_a_week(wire: Wire) -> None:
    assert by_hand(wire, "GET", f"/{BUCKET}/here", seconds=604_800, now=at(-600_000)).send() == (200, b"content")


def test_url_signed_in_the_future_is_refused(wire: Wire) -> None:
    status, body = by_hand(wire, "GET", f"/{BUCKET}/here", now=at(1000)).send()
    assert (status, code(body), b"Request is not yet valid" in body) == (403, "AccessDenied", True)


def _method(wire: Wire) -> None:
    wire.method = "DELETE"


def _key(wire: Wire) -> None:
    wire.path = wire.path.replace("/here?", "/her?")


def _more(wire: Wire) -> None:
    wire.path += "&uploads="


def _more_encoded(wire: Wire) -> None:
    wire.path += "&%75ploads="


def _more_header(wire: Wire) -> None:
    wire.path += "&x-amz-acl=private"


def _longer(wire: Wire) -> None:
    wire.path = re.sub(r"Expires=(\d+)", lambda match: f"Expires={int(match[1]) + 1000}", wire.path)


def _signature(wire: Wire) -> None:
    wire.path = re.sub(r"Signature=[^&]+", "Signature=" + "0" * 64, wire.path)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", [_method, _key, _more, _more_encoded, _more_header, _longer, _signature])
def test_an_altered_url_is_refused(
    wire: Wire, version: str | None, change: Callable[[Wire], None], unchanged: None
) -> None:
    change(presign(wire, "get_object", version, Key="here"))
    status, body = wire.send()
    assert (status, code(body)) == (403, "SignatureDoesNotMatch")
    assert b"<StringToSign>" in body


def test_the_type_of_an_object_cannot_be_altered_in_version_2(wire: Wire, unchanged: None) -> None:
    presign(wire, "put_object", None, Key="described", ContentType="text/x-signed")
    wire.headers["Content-Type"] = "text/x-other"
    assert code(wire.send()[1]) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (r"Expires=60", "Expires=604801", "less than a week"),
        (r"Expires=60", "Expires=0", "at least 1"),
        (r"Expires=60", "Expires=-1", "non-negative"),
        (r"Expires=60", "Expires=1m", "should be a number"),
        (r"Expires=60", f"Expires={'9' * 5000}", "should be a number"),
        (r"Expires=60", "Expires=", "requires the X-Amz-Algorithm"),
        (r"X-Amz-Date=\w+", "X-Amz-Date=now", "ISO8601"),
        (r"X-Amz-Date=20", "X-Amz-Date=19", "Invalid credential date"),
        (r"&X-Amz-SignedHeaders=host", "", "requires the X-Amz-Algorithm"),
        (r"&X-Amz-Signature=\w+", "", "requires the X-Amz-Algorithm"),
        (r"X-Amz-Signature=\w+", "X-Amz-Signature=zz", "64 hexadecimal digits"),
        (r"SHA256", "SHA1", "X-Amz-Algorithm only supports"),
        (r"%2Fs3%2F", "%2Fec2%2F", "incorrect service"),
        (r"%2Faws4_request", "", "mal-formed"),
    ],
)
def test_a_malformed_url_is_refused(wire: Wire, pattern: str, replacement: str, message: str, unchanged: None) -> None:
    presign(wire, "get_object", Key="here")
    wire.path, count = re.subn(pattern, replacement, wire.path)
    assert count == 1
    status, body = wire.send()
    assert (status, code(body)) == (400, "AuthorizationQueryParametersError")
    assert message in body.decode()


def test_url_without_signed_host_or_amz_header_is_refused(wire: Wire, unchanged: None) -> None:
    presign(wire, "get_object", Key="here")
    wire.path = wire.path.replace("SignedHeaders=host", "SignedHeaders=date")
    status, body = wire.send()
    assert (status, code(body)) == (403, "AccessDenied")
    assert b"<HeadersNotSigned>host</HeadersNotSigned>" in body
    presign(wire, "put_object", Key="there").headers["x-amz-copy-source"] = f"/{BUCKET}/here"
    status, body = wire.send()
    assert (status, code(body)) == (403, "AccessDenied")
    assert b"<HeadersNotSigned>x-amz-copy-source</HeadersNotSigned>" in body


@pytest.mark.parametrize("parameter", ["Expires", "Signature", "AWSAccessKeyId"])
def test_a_url_of_version_2_without_a_parameter_is_refused(wire: Wire, parameter: str) -> None:
    presign(wire, "get_object", None, Key="here")
    wire.path = re.sub(rf"[?&]{parameter}=[^&]+", "", wire.path).replace("/here&", "/here?")
    status, body = wire.send()
    assert (status, code(body)) == (403, "AccessDenied")


@pytest.mark.parametrize("text", ["soon", "-1", "9" * 12])
def test_a_url_of_version_2_with_an_impossible_date_is_refused(wire: Wire, text: str) -> None:
    presign(wire, "get_object", None, Key="here")
    wire.path = re.sub(r"Expires=\d+", f"Expires={text}", wire.path)
    status, body = wire.send()
    assert (status, code(body), b"seconds since epoch" in body) == (403, "AccessDenied", True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_url_of_unknown_keys_or_with_two_signatures_is_refused(wire: Wire, version: str | None) -> None:
    presign(wire, "get_object", version, Key="here")
    path = wire.path
    wire.path = path.replace(wire.cloud.endpoint.access_key, "AKIAUNKNOWN")
    assert code(wire.send()[1]) == "InvalidAccessKeyId"
    wire.path = path
    wire.headers["Authorization"] = "AWS4-HMAC-SHA256 x"
    status, body = wire.send()
    assert (status, code(body), b"Only one auth mechanism" in body) == (400, "InvalidArgument", True)


@pytest.mark.parametrize("header", [("Origin", "http://attacker.example"), ("Host", "attacker.example")])
def test_a_url_is_refused_from_a_web_page_and_for_another_host(wire: Wire, header: tuple[str, str]) -> None:
    presign(wire, "get_object", Key="here").headers |= dict([header])
    status, body = wire.send()
    assert (status, code(body)) == (403, "AccessDenied")
