"""Presigned URLs of S3, and the error codes of the answers."""

from __future__ import annotations

import re
from typing import Any

from botocore.config import Config

from tests.support.services.cloud import BUCKET, client_of
from tests.support.services.raw_requests import Wire


def presign(wire: Wire, operation: str, version: str | None = "s3v4", seconds: int = 60, **parameters: Any) -> Wire:
    """Give the wire's request a URL that boto3 has presigned."""
    config = Config(signature_version=version)
    client = client_of(wire.cloud.endpoint, "s3", config=config)
    url = client.generate_presigned_url(operation, Params={"Bucket": BUCKET, **parameters}, ExpiresIn=seconds)
    wire.method = {"get": "GET", "put": "PUT", "head": "HEAD", "delete": "DELETE", "upload": "PUT", "list": "GET"}[
        operation.partition("_")[0]
    ]
    wire.path = url.removeprefix(wire.cloud.endpoint.url)
    return wire


def code(body: bytes) -> str:
    match = re.search(rb"<Code>(\w+)</Code>", body)
    return match[1].decode() if match else ""
