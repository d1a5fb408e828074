"""Signed requests to the local cloud as bytes, so that a test can change them after signing."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.services.cloud import BUCKET, Cloud

STOP = b'{"TrainingJobName": "unknown"}'


TARGET = {"X-Amz-Target": "SageMaker.StopTrainingJob", "Content-Type": "application/x-amz-json-1.1"}


class Wire:
    """Signs requests with botocore and sends them itself, so that a test can change anything in between."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.netloc = urlsplit(cloud.endpoint.url).netloc
        self.method = "PUT"
        self.path = f"/{BUCKET}/object"
        self.body = b"content"
        self.headers: dict[str, str] = {}

    def sign(self, *, access_key: str = "", secret_key: str = "", now: datetime | None = None) -> Wire:
        endpoint = self.cloud.endpoint
        credentials = Credentials(access_key or endpoint.access_key, secret_key or endpoint.secret_key)
        headers = {"Host": self.netloc, **self.headers}
        request = AWSRequest(self.method, endpoint.url + self.path, headers, self.body)
        request.context["timestamp"] = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
        kind, service = (SigV4Auth, "sagemaker") if "X-Amz-Target" in self.headers else (S3SigV4Auth, "s3")
        signer = kind(credentials, service, endpoint.region)
        signer._modify_request_before_signing(request)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        signer._inject_signature_to_request(request, signer.signature(text, request))
        self.headers = dict(request.headers.items())
        return self

    def send(self) -> tuple[int, bytes]:
        status, _, body = self.send_for_headers()
        return status, body

    def send_for_headers(self) -> tuple[int, dict[str, str], bytes]:
        """As `send`, but also return the answer's headers, with names in lower case."""
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        connection.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
        length = {} if "Transfer-Encoding" in self.headers else {"Content-Length": str(len(self.body))}
        for name, value in {**length, **self.headers}.items():
            connection.putheader(name, value)
        connection.endheaders(self.body)
        response = connection.getresponse()
        try:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, headers, response.read()
        finally:
            connection.close()


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def unchanged(shared_cloud: Cloud) -> Iterator[None]:
    before = contents(shared_cloud.state_dir)
    yield
    assert contents(shared_cloud.state_dir) == before
