"""Finds the job's AWS credentials: in the environment, else at the container's credential service."""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
from pathlib import Path
from typing import Mapping
from urllib.parse import urlsplit

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.fetch.sigv4 import Credentials

# The link-local service of ECS, which SageMaker uses for its containers as well (AWS SDKs reference, "Container
# credential provider").
_CONTAINER_SERVICE = "http://169.254.170.2"
# Plain HTTP to these link-local addresses stays on the host (the same page; the last two are those of EKS).
_LINK_LOCAL = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_TIMEOUT_S = 5.0
_ATTEMPTS = 4
_LONGEST_ANSWER = 64 * 1024


def find_credentials(environ: Mapping[str, str]) -> Credentials:
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return Credentials(
            environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], environ.get("AWS_SESSION_TOKEN") or None
        )
    relative, full = (environ.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))
    if relative:
        return _ask_container_service(_CONTAINER_SERVICE + relative, {})
    if full:
        token = _token(environ)
        return _ask_container_service(_trusted(full), {"Authorization": token} if token else {})
    raise SourceError(
        "The container has no AWS credentials to fetch code and packages. Set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or start the job with a role, which sets AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI."
    )


def _token(environ: Mapping[str, str]) -> str | None:
    """The authorization token, from a file that the platform updates, else from a variable."""
    path = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    if not path:
        return environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SourceError(f"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE {path} cannot be read: {error}.") from error


def _trusted(url: str) -> str:
    """`url` if it is a safe source of credentials: over TLS, on a loopback address or at the platform's service."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or (parts.scheme == "http" and (_is_loopback(host) or host in _LINK_LOCAL)):
        return url
    raise SourceError(f"AWS_CONTAINER_CREDENTIALS_FULL_URI must be https or a loopback address, found {url!r}.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ask_container_service(url: str, headers: dict[str, str]) -> Credentials:
    for attempt in range(_ATTEMPTS):
        try:
            return _parse(_get(url, headers))
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            failure = error
            time.sleep(0.2 * 2**attempt)
    raise SourceError(f"The container's credentials could not be read from {url}: {failure!r}.")


def _get(url: str, headers: dict[str, str]) -> bytes:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=headers)
        response = connection.getresponse()
        body = response.read(_LONGEST_ANSWER)
    finally:
        connection.close()
    if response.status != 200:
        raise OSError(f"HTTP {response.status}")
    return body


def _parse(body: bytes) -> Credentials:
    answer = json.loads(body)
    return Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer.get("Token"))
