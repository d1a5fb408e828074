"""The object store with a stock client: acknowledged objects stay unchanged, under any key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud import objects
from smdp_launch.localcloud.client.connect import object_path
from tests.support.services.cloud import BUCKET, Cloud, kill

KEYS = [
    "a", "a/b", "a/b/c", "model/model.tar.gz", "with space", "ünï/cödé", "%2F", "%252F", "a+b", "q?x=1&y#z", "tilde~",
    "..", "../up", "x/../y", "./x", "x//y", "/lead", "trail/", "new\nline", "back\\slash", ".objects/x", "x" * 300,
]  # fmt: skip


def test_every_key_has_its_own_bytes(shared_cloud: Cloud) -> None:
    for key in KEYS:
        shared_cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=f"of {key}".encode())
    assert sorted(shared_cloud.keys()) == sorted(KEYS)
    for key in KEYS:
        assert shared_cloud.object(key) == f"of {key}".encode()
        path = object_path(shared_cloud.state_dir, BUCKET, key)
        assert path is not None
        assert path.read_bytes() == f"of {key}".encode()
        assert shared_cloud.state_dir / "s3" / BUCKET in path.parents
    for key in KEYS:
        shared_cloud.s3.delete_object(Bucket=BUCKET, Key=key)
    assert [path.name for path in (shared_cloud.state_dir / "s3" / BUCKET).rglob("*")] == [".objects"]


def test_object_with_safe_key_has_its_natural_path(shared_cloud: Cloud) -> None:
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="natural/path.txt", Body=b"1")
    expected = shared_cloud.state_dir / "s3" / BUCKET / "natural/path.txt"
    assert object_path(shared_cloud.state_dir, BUCKET, "natural/path.txt") == expected


def test_overwrite_replaces_bytes_and_metadata(shared_cloud: Cloud) -> None:
    for body in (b"first", b"second"):
        shared_cloud.s3.put_object(Bucket=BUCKET, Key="twice", Body=body, Metadata={"body": body.decode()})
    assert shared_cloud.object("twice") == b"second"
    assert shared_cloud.s3.head_object(Bucket=BUCKET, Key="twice")["Metadata"] == {"body": "second"}


def test_copy_survives_deletion_of_its_source(shared_cloud: Cloud) -> None:
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="from", Body=b"copied")
    shared_cloud.s3.copy_object(Bucket=BUCKET, Key="to/here", CopySource={"Bucket": BUCKET, "Key": "from"})
    shared_cloud.s3.delete_object(Bucket=BUCKET, Key="from")
    assert shared_cloud.object("to/here") == b"copied"


def test_deleting_several_at_once_removes_their_files(shared_cloud: Cloud) -> None:
    keys = ["many/1", "many/2", "many/.."]
    for key in keys:
        shared_cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    shared_cloud.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert shared_cloud.keys("many/") == []
    assert [object_path(shared_cloud.state_dir, BUCKET, key) for key in keys] == [None, None, None]


def test_ranges_and_listing_pages_are_exact(shared_cloud: Cloud) -> None:
    shared_cloud.s3.put_object(Bucket=BUCKET, Key="ranged", Body=bytes(range(256)))
    ranges = {"bytes=10-19": (10, 20), "bytes=250-": (250, 256), "bytes=-5": (251, 256), "bytes=0-999": (0, 256)}
    for header, (start, end) in ranges.items():
        part = shared_cloud.s3.get_object(Bucket=BUCKET, Key="ranged", Range=header)
        assert part["Body"].read() == bytes(range(start, end))
        assert part["ContentRange"] == f"bytes {start}-{end - 1}/256"
    with pytest.raises(ClientError, match="InvalidRange"):
        shared_cloud.s3.get_object(Bucket=BUCKET, Key="ranged", Range="bytes=256-")
    for number in range(5):
        shared_cloud.s3.put_object(Bucket=BUCKET, Key=f"pages/{number}", Body=b"")
    pages = shared_cloud.s3.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix="pages/", PaginationConfig={"PageSize": 2}
    )
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == [f"pages/{n}" for n in range(5)]


def test_multipart_upload_becomes_one_object(shared_cloud: Cloud) -> None:
    parts = [b"1" * (5 * 1024 * 1024), b"2" * 1000]
    upload = shared_cloud.s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    done = []
    for number, body in enumerate(parts, 1):
        answer = shared_cloud.s3.upload_part(Bucket=BUCKET, Key="parts", UploadId=upload, PartNumber=number, Body=body)
        done.append({"PartNumber": number, "ETag": answer["ETag"]})
    assert object_path(shared_cloud.state_dir, BUCKET, "parts") is None
    shared_cloud.s3.complete_multipart_upload(
        Bucket=BUCKET, Key="parts", UploadId=upload, MultipartUpload={"Parts": done}
    )
    assert shared_cloud.object("parts") == b"".join(parts)
    assert shared_cloud.s3.head_object(Bucket=BUCKET, Key="parts")["ETag"].endswith('-2"')
    assert list((shared_cloud.state_dir / "spool").iterdir()) == []


def test_multipart_upload_with_wrong_part_stays_open(shared_cloud: Cloud) -> None:
    names = {"Bucket": BUCKET, "Key": "unfinished"}
    upload = shared_cloud.s3.create_multipart_upload(**names)["UploadId"]
    tag = shared_cloud.s3.upload_part(**names, UploadId=upload, PartNumber=1, Body=b"first")["ETag"]
    wrong, right = ({"Parts": [{"PartNumber": 1, "ETag": etag}]} for etag in ('"0"', tag))
    with pytest.raises(ClientError, match="InvalidPart"):
        shared_cloud.s3.complete_multipart_upload(**names, UploadId=upload, MultipartUpload=wrong)
    shared_cloud.s3.complete_multipart_upload(**names, UploadId=upload, MultipartUpload=right)
    assert shared_cloud.object("unfinished") == b"first"


def test_a_transfer_in_many_parts_arrives_whole(shared_cloud: Cloud, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(bytes(range(256)) * 80_000)
    endpoint = shared_cloud.endpoint
    session = boto3.Session(endpoint.access_key, endpoint.secret_key, region_name=endpoint.region)
    client = session.client("s3", endpoint_url=endpoint.url)
    client.upload_file(str(source), BUCKET, "large")
    client.download_file(BUCKET, "large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_setting_that_is_not_stored_is_refused(shared_cloud: Cloud) -> None:
    with pytest.raises(ClientError, match="does not support versioning"):
        shared_cloud.s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})


def test_bucket_is_created_and_deleted(shared_cloud: Cloud) -> None:
    shared_cloud.s3.create_bucket(Bucket="fleeting")
    shared_cloud.s3.create_bucket(Bucket="fleeting")
    shared_cloud.s3.put_object(Bucket="fleeting", Key="x", Body=b"")
    with pytest.raises(ClientError, match="BucketNotEmpty"):
        shared_cloud.s3.delete_bucket(Bucket="fleeting")
    shared_cloud.s3.delete_object(Bucket="fleeting", Key="x")
    shared_cloud.s3.delete_bucket(Bucket="fleeting")
    assert not (shared_cloud.state_dir / "s3/fleeting").exists()
    with pytest.raises(ClientError, match="NoSuchBucket"):
        shared_cloud.s3.list_objects_v2(Bucket="fleeting")


def test_objects_survive_a_killed_server(open_cloud: Callable[[], Cloud]) -> None:
    first = open_cloud()
    bodies = {key: hashlib.sha256(key.encode()).digest() * 100 for key in KEYS}
    for key, body in bodies.items():
        first.s3.put_object(Bucket=BUCKET, Key=key, Body=body, ContentType="text/x-test", Metadata={"n": "1"})
    before = {key: first.s3.head_object(Bucket=BUCKET, Key=key)["ETag"] for key in KEYS}
    kill(first.endpoint.pid)
    second = open_cloud()
    assert second.endpoint.pid != first.endpoint.pid
    assert sorted(second.keys()) == sorted(KEYS)
    for key, body in bodies.items():
        answer = second.s3.get_object(Bucket=BUCKET, Key=key)
        assert answer["Body"].read() == body
        assert (answer["ETag"], answer["ContentType"], answer["Metadata"]) == (before[key], "text/x-test", {"n": "1"})


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
key_texts = st.one_of(
    texts, st.lists(st.sampled_from(["a", "b", ".", "..", "", "é", ".objects"]), max_size=5).map("/".join)
)


@given(key_texts)
def test_natural_path_equals_key_and_stays_in_bucket(key: str) -> None:
    path = objects.natural_path(key)
    if path is not None:
        assert path.as_posix() == key
        assert not path.is_absolute()
        assert not {"..", objects.INDEX} & set(path.parts)


@given(st.lists(key_texts, unique=True, max_size=8))
def test_different_keys_never_share_a_file(keys: list[str]) -> None:
    places = [objects.natural_path(key) or Path(objects.INDEX, objects.digest(key)) for key in keys]
    assert len(set(places)) == len(keys)


def test_a_bucket_of_another_account_is_denied(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="owned", Body=b"x", ExpectedBucketOwner="000000000000")
    for call in (cloud.s3.get_object, cloud.s3.delete_object):
        with pytest.raises(ClientError, match="AccessDenied"):
            call(Bucket=BUCKET, Key="owned", ExpectedBucketOwner="111111111111")
    assert cloud.object("owned") == b"x"


def test_read_by_part_number_is_refused(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="whole", Body=b"x")
    for call in (cloud.s3.get_object, cloud.s3.head_object):
        with pytest.raises(ClientError, match=r"NotImplemented|501"):
            call(Bucket=BUCKET, Key="whole", PartNumber=1)
