"""Downloads one object from S3, with retries, deadlines and at most one change of region."""

from __future__ import annotations

import http.client
import re
import ssl
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, Callable, Mapping
from urllib.parse import quote, urlsplit

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.fetch.credentials import find_credentials
from smdp_entrypoint.fetch.partitions import dns_suffix
from smdp_entrypoint.fetch.sigv4 import Credentials, Request, signed

_READ_TIMEOUT_S = 30.0
_DEADLINE_S = 15 * 60.0
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.5
_BLOCK = 1024 * 1024
# Responses to retry, besides every 5xx: a request timeout and throttling.
_TRY_AGAIN = (408, 429)
_FALLBACK_REGION = "us-east-1"  # S3's own default; a bucket elsewhere answers with its region


@dataclass(frozen=True)
class S3Object:
    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> S3Object:
        bucket, _, key = uri[len("s3://") :].partition("/")
        if not (uri.startswith("s3://") and bucket and key):
            raise SourceError(f"{uri!r} does not name an S3 object; its form is s3://bucket/key.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class _TryAgain(Exception):
    """The request can be retried. For this module only."""


class _OtherRegion(Exception):
    """The bucket is in another region. For this module only."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self.region = region


class Download:
    """An object to download. `environ` gives endpoint, region and credentials, as for the AWS SDKs."""

    def __init__(self, source: S3Object, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.source = source
        self.say = say
        self.region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _FALLBACK_REGION
        self.first_pause = _FIRST_PAUSE_S
        self._environ = environ
        self._end = time.monotonic() + _DEADLINE_S

    def to(self, target: IO[bytes]) -> int:
        """Write the object to `target` from its beginning and return its size. Raises SourceError."""
        credentials = find_credentials(self._environ)
        moved = False
        attempt = 1
        while True:
            try:
                return self._once(target, credentials)
            except _OtherRegion as answer:
                if moved or answer.region == self.region:
                    raise SourceError(f"{self.source}: S3 redirects again from region {self.region}.") from None
                moved, self.region = True, answer.region
            except (_TryAgain, OSError, http.client.HTTPException) as error:
                self._pause(attempt, error)
                attempt += 1

    def _pause(self, attempt: int, error: Exception) -> None:
        if attempt >= _ATTEMPTS or time.monotonic() >= self._end:
            raise SourceError(f"{self.source} could not be downloaded in {attempt} attempts: {error}.") from error
        self.say(f"downloading {self.source}, attempt {attempt} of {_ATTEMPTS}: {error}")
        time.sleep(self.first_pause * 2 ** (attempt - 1))

    def _once(self, target: IO[bytes], credentials: Credentials) -> int:
        target.seek(0)
        target.truncate()
        connection, host, path = self._connect()
        try:
            headers = signed(Request("GET", host, path), self.region, credentials, datetime.now(timezone.utc))
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise self._refusal(response)
            return self._copy(response, target)
        finally:
            connection.close()

    def _connect(self) -> tuple[http.client.HTTPConnection, str, str]:
        url = object_url(self.source, self.region, self._environ)
        parts = urlsplit(url)
        if parts.scheme == "http":
            plain = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_READ_TIMEOUT_S)
            return plain, parts.netloc, parts.path
        context = ssl.create_default_context(cafile=self._environ.get("AWS_CA_BUNDLE") or None)
        secure = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_READ_TIMEOUT_S, context=context)
        return secure, parts.netloc, parts.path

    def _copy(self, response: http.client.HTTPResponse, target: IO[bytes]) -> int:
        expected = response.length
        size = 0
        while True:
            block = response.read(_BLOCK)
            if not block:
                break
            self._keep(target, block)
            size += len(block)
            if time.monotonic() >= self._end:
                raise SourceError(f"{self.source} was not complete after {_DEADLINE_S:g} s: {size} bytes downloaded.")
        if expected is not None and size != expected:
            raise _TryAgain(f"the connection ended after {size} of {expected} bytes")
        target.flush()
        return size

    def _keep(self, target: IO[bytes], block: bytes) -> None:
        try:
            target.write(block)
            target.flush()
        except OSError as error:  # another request does not help against a full disk
            raise SourceError(f"{self.source} cannot be stored in {tempfile.gettempdir()}: {error}.") from error

    def _refusal(self, response: http.client.HTTPResponse) -> Exception:
        body = response.read(64 * 1024).decode("utf-8", "replace")
        code, message = _element(body, "Code"), _element(body, "Message")
        region = self._region_named(response, body)
        if response.status in (301, 307, 400) and region and region != self.region:
            return _OtherRegion(region)
        detail = f"HTTP {response.status} {code or response.reason}: {message}".rstrip(": ")
        if response.status >= 500 or response.status in _TRY_AGAIN:
            return _TryAgain(detail)
        return SourceError(f"{self.source} cannot be downloaded: {detail}.{_advice(response.status, self.source)}")

    def _region_named(self, response: http.client.HTTPResponse, body: str) -> str:
        # Only the region's name is read from the response, never an address: requests are signed for AWS's hosts only.
        named = response.getheader("x-amz-bucket-region") or _element(body, "Region")
        place = re.search(r"[./]s3[.-]([a-z0-9-]+)\.amazonaws\.com", response.getheader("Location") or "")
        region = named or (place[1] if place else "")
        return region if re.fullmatch(r"[a-z0-9-]+", region) else ""


def object_url(source: S3Object, region: str, environ: Mapping[str, str]) -> str:
    """The object's URL. The bucket is part of the host name; it is part of the path if the endpoint is configured, or
    if the bucket's name has dots, which the wildcard of AWS's certificate does not cover."""
    key = quote(source.key, safe="/~")
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL")
    own = next((environ[name] for name in names if environ.get(name)), None)
    if own:
        parts = urlsplit(own)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError(f"The S3 endpoint {own!r} is not an http or https address.")
        return f"{own.rstrip('/')}/{source.bucket}/{key}"
    suffix = dns_suffix(region)
    if "." in source.bucket:
        return f"https://s3.{region}.{suffix}/{source.bucket}/{key}"
    return f"https://{source.bucket}.s3.{region}.{suffix}/{key}"


def _element(xml: str, name: str) -> str:
    # S3's error documents are flat; an XML parser for untrusted text would add more risk than it avoids.
    match = re.search(f"<{name}>([^<]*)</{name}>", xml)
    return match[1].strip() if match else ""


def _advice(status: int, source: S3Object) -> str:
    if status == 403:
        return f" The job's role needs s3:GetObject on {source}, and kms:Decrypt if the bucket is encrypted."
    return " Check sagemaker_submit_directory." if status == 404 else ""
