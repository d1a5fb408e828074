"""Write bodies in chunks as AWS's SDKs do, with botocore's signatures, so that a test can change any part."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.services.raw_requests import Wire

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY = hashlib.sha256().hexdigest()


class _Auth(S3SigV4Auth):
    form = ""

    def payload(self, request: AWSRequest) -> str:
        return self.form


def unsigned_chunks(chunks: Sequence[bytes], trailers: Mapping[str, str]) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return body + b"0\r\n" + b"".join(f"{name}:{value}\r\n".encode() for name, value in trailers.items()) + b"\r\n"


class Signer:
    """Signs a wire's request for a body in chunks, then the chunks."""

    def __init__(self, wire: Wire, form: str, length: str | None, trailers: Sequence[str] = ()) -> None:
        endpoint = wire.cloud.endpoint
        headers = {"Host": wire.netloc, "Content-Encoding": "aws-chunked", **wire.headers}
        if length is not None:
            headers["X-Amz-Decoded-Content-Length"] = length
        if trailers:
            headers["X-Amz-Trailer"] = ",".join(trailers)
        self.request = AWSRequest(wire.method, endpoint.url + wire.path, headers)
        self.request.context["timestamp"] = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self._auth = _Auth(Credentials(endpoint.access_key, endpoint.secret_key), "s3", endpoint.region)
        self._auth.form = form
        self._auth._modify_request_before_signing(self.request)
        text = self._auth.string_to_sign(self.request, self._auth.canonical_request(self.request))
        self.previous = self._auth.signature(text, self.request)
        self._auth._inject_signature_to_request(self.request, self.previous)
        wire.headers = dict(self.request.headers.items())

    def _sign(self, kind: str, hashed: str) -> str:
        scope = self._auth.credential_scope(self.request)
        timestamp = self.request.context["timestamp"]
        text = f"{kind}\n{timestamp}\n{scope}\n{self.previous}\n{hashed}"
        self.previous = self._auth.signature(text, self.request)
        return self.previous

    def chunk(self, data: bytes) -> bytes:
        signature = self._sign("AWS4-HMAC-SHA256-PAYLOAD", f"{EMPTY}\n{hashlib.sha256(data).hexdigest()}")
        end = b"\r\n" if data else b""
        return b"%x;chunk-signature=%s\r\n%s%s" % (len(data), signature.encode(), data, end)

    def trailers(self, trailers: Mapping[str, str]) -> bytes:
        text = "".join(f"{name}:{value}\n" for name, value in sorted(trailers.items()))
        signature = self._sign("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(text.encode()).hexdigest())
        lines = {**trailers, "x-amz-trailer-signature": signature}
        return b"".join(f"{name}:{value}\r\n".encode() for name, value in lines.items())


def write(wire: Wire, form: str, chunks: Sequence[bytes], trailers: Mapping[str, str] | None = None) -> None:
    """Give the wire's request a body in these chunks."""
    trailers = trailers or {}
    signer = Signer(wire, form, str(sum(map(len, chunks))), list(trailers))
    if form == UNSIGNED_TRAILER:
        wire.body = unsigned_chunks(chunks, trailers)
    else:
        parts = [signer.chunk(chunk) for chunk in (*chunks, b"")]
        wire.body = b"".join(parts) + (signer.trailers(trailers) if form == SIGNED_TRAILER else b"") + b"\r\n"
