"""Signs requests with AWS Signature Version 4 (AWS General Reference, "Signing AWS API requests").

Only what the entrypoint needs: requests without a body, with an encoded path and query. S3 signs the path as it is
sent; for other services, use only paths that encoding does not change.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Credentials:
    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"  # a log must never contain the secret


@dataclass(frozen=True)
class Request:
    """`host` is the Host header's value; `query` is sorted by name."""

    method: str
    host: str
    path: str
    query: str = ""
    service: str = "s3"

    def canonical(self, headers: dict[str, str], names: str) -> str:
        lines = [f"{name}:{value.strip()}" for name, value in sorted(headers.items())]
        return "\n".join([self.method, self.path, self.query, *lines, "", names, _EMPTY_BODY])


def signed(request: Request, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The request's headers, Authorization included. `now` is UTC."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": request.host, "x-amz-date": stamp}
    if request.service == "s3":
        headers["x-amz-content-sha256"] = _EMPTY_BODY
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    scope = f"{stamp[:8]}/{region}/{request.service}/aws4_request"
    names = ";".join(sorted(headers))
    digest = hashlib.sha256(request.canonical(headers, names).encode()).hexdigest()
    to_sign = "\n".join([_ALGORITHM, stamp, scope, digest])
    signature = hmac.new(_signing_key(credentials, scope), to_sign.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _signing_key(credentials: Credentials, scope: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
