"""Uploads: large files are sent in parts, and a failed upload leaves nothing."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from smdp_launch.jobs.service.clients import connect_aws
from smdp_launch.jobs.submit import send_source
from smdp_launch.jobs.transfer.upload import PART, upload
from smdp_launch.request.names import S3Location
from smdp_launch.testing import local_cloud
from tests.conftest import JOB, write_job
from tests.support.jobs.plans import plan_of
from tests.support.terminal import on_a_terminal

WHERE = S3Location("bucket", "a/b")


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with local_cloud():
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 5 * PART + 17])
def test_object_has_every_byte(s3: Any, size: int) -> None:
    data = os.urandom(size)
    calls: list[tuple[int, int]] = []
    upload(s3, io.BytesIO(data), size, WHERE, lambda *one: calls.append(one))
    assert s3.get_object(Bucket="bucket", Key="a/b")["Body"].read() == data
    assert calls[0] == (0, size)
    assert calls[-1] == (size, size)
    assert calls == sorted(calls)
    parts = re.search(r"-(\d+)\"$", s3.head_object(Bucket="bucket", Key="a/b")["ETag"])
    assert (int(parts[1]) if parts else 1) == max(1, -(-size // PART))


@pytest.mark.parametrize("size", [10, 2 * PART])
def test_source_is_encrypted_with_the_output_key(s3: Any, tmp_path: Path, size: int) -> None:
    sent: list[dict[str, Any]] = []
    for operation in ("PutObject", "CreateMultipartUpload"):
        s3.meta.events.register(f"provide-client-params.s3.{operation}", lambda params, **_: sent.append(params))
    text = JOB + "encryption: {output_key: alias/results}\n"
    path = write_job(tmp_path, text)
    (tmp_path / "src" / "data.bin").write_bytes(os.urandom(size))
    send_source(replace(connect_aws("us-east-1"), s3=s3), plan_of(path))
    keys = {"ServerSideEncryption", "SSEKMSKeyId"}
    (one,) = sent
    assert {key: one.get(key) for key in keys} == {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/results"}


class BrokenFile(io.BytesIO):
    """A file that cannot be read after three parts."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 3 * PART:
            raise OSError("read error")
        return super().read(size)


def test_failed_upload_leaves_no_object_or_part(s3: Any) -> None:
    s3.delete_object(Bucket="bucket", Key="a/b")
    with pytest.raises(OSError, match="read error"):
        upload(s3, BrokenFile(os.urandom(6 * PART)), 6 * PART, WHERE)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket", Prefix="a/b")


def test_interrupted_upload_leaves_no_part(s3: Any) -> None:
    def interrupt(sent: int, _: int) -> None:
        if sent:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload(s3, io.BytesIO(os.urandom(6 * PART)), 6 * PART, WHERE, interrupt)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")


@pytest.mark.parametrize("columns", [80, pytest.param(140, marks=pytest.mark.runs)])
def test_terminal_shows_progress_of_large_upload(tmp_path: Path, columns: int) -> None:
    write_job(tmp_path)
    (tmp_path / "src" / "weights").write_bytes(os.urandom(4 * PART))
    arguments = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    shown = on_a_terminal(tmp_path, arguments, columns, COLORTERM="truecolor")
    assert re.search(r"source.*33\.6/33\.6 MB", shown)
    assert "completed" in shown
