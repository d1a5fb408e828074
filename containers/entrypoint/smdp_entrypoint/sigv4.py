"""Signs a GET for S3 with AWS Signature Version 4 (AWS General Reference, "Signing AWS API requests").

Only what a download needs: no query, no body, the path already encoded. S3 signs the path as it is sent.
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
        return f"Credentials(access_key={self.access_key!r})"  # a log must never hold the secret


def signed_get(host: str, path: str, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The headers of `GET path`, Authorization included. `now` is UTC; `host` is the Host header's value."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY_BODY, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    names = ";".join(sorted(headers))
    request = _canonical_get(path, headers, names)
    to_sign = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(_signing_key(credentials, scope), to_sign.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _canonical_get(path: str, headers: dict[str, str], names: str) -> str:
    lines = [f"{name}:{value.strip()}" for name, value in sorted(headers.items())]
    return "\n".join(["GET", path, "", *lines, "", names, _EMPTY_BODY])


def _signing_key(credentials: Credentials, scope: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
