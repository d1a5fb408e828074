"""A read-only client of a registry: manifests and configs, as in the OCI distribution specification.

The registry is not trusted. The size of every answer and the total time are bounded, and content is accepted only if
it has the requested digest. The login is sent only to the registry and to the token service that it names, never to
the target of a redirect.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from smdp_launch.catalog.images import ImageUri
from smdp_launch.image import documents
from smdp_launch.image.tools import Login

MANIFEST_LIMIT = 4 * 1024 * 1024  # bytes, the size that the specification requires registries to accept
CONFIG_LIMIT = 8 * 1024 * 1024
_TOKEN_LIMIT = 64 * 1024
_READ_TIMEOUT = 10.0  # seconds without a byte
_BLOCK = 65536
_DOCKER_HUB = "registry-1.docker.io"
_LISTS = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class RegistryError(Exception):
    """The registry refused, did not answer, or sent wrong content."""


@dataclass(frozen=True)
class Blob:
    data: bytes
    kind: str


@dataclass
class Registry:
    """One repository of a registry.

    Args:
        deadline: on the monotonic clock.
    """

    image: ImageUri
    login: Login | None
    deadline: float
    _authorization: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        return self.image.registry if self.image.registry not in ("", "docker.io") else _DOCKER_HUB

    @property
    def repository(self) -> str:
        official = self.host == _DOCKER_HUB and "/" not in self.image.repository
        return f"library/{self.image.repository}" if official else self.image.repository

    def manifest(self, reference: str) -> Blob:
        """The manifest of a tag or digest, or the index if there is one."""
        blob = self._get(f"manifests/{reference}", ", ".join([*_LISTS, *_MANIFESTS]), MANIFEST_LIMIT)
        return _verified(blob, reference) if _DIGEST.fullmatch(reference) else blob

    def config(self, digest: str) -> Blob:
        return _verified(self._get(f"blobs/{digest}", "*/*", CONFIG_LIMIT), digest)

    def _get(self, path: str, accept: str, limit: int) -> Blob:
        url = f"{_scheme(self.host)}://{self.host}/v2/{self.repository}/{path}"
        try:
            return self._fetch(url, accept, limit)
        except urllib.error.HTTPError as error:
            if error.code != http.client.UNAUTHORIZED or self._authorization:
                raise self._refusal(error) from None
            self._authorization = self._answer_challenge(error.headers.get("WWW-Authenticate", ""))
        try:
            return self._fetch(url, accept, limit)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None

    def _fetch(self, url: str, accept: str, limit: int) -> Blob:
        request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 (http and https alone)
        if self._authorization:
            # Not sent to the target of a redirect: registries often keep blobs in third-party storage.
            request.add_unredirected_header("Authorization", self._authorization)
        return _read(request, limit, self.deadline)

    def _answer_challenge(self, challenge: str) -> str:
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self.login is not None:
            return _basic(self.login)
        if scheme.lower() != "bearer":
            raise RegistryError(f"{self.host} needs a login: for a registry other than ECR use --user")
        return f"Bearer {self._token(dict(_PARAMETER.findall(rest)))}"

    def _token(self, parameters: Mapping[str, str]) -> str:
        realm = parameters.get("realm", "")
        parts = _trusted(realm)
        if parts is None:
            raise RegistryError(f"{self.host} names an unsafe token service, {documents.printable(realm)!r}")
        query = {"scope": parameters.get("scope") or f"repository:{self.repository}:pull"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        url = f"{realm}{'&' if parts.query else '?'}{urlencode(query)}"
        request = urllib.request.Request(url)  # noqa: S310 (checked just above)
        if self.login is not None:
            request.add_unredirected_header("Authorization", _basic(self.login))
        try:
            answer = documents.parse(_read(request, _TOKEN_LIMIT, self.deadline).data, "the token service's answer")
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError(f"{parts.netloc} sent no token")
        return token

    def _refusal(self, error: urllib.error.HTTPError) -> RegistryError:
        name = f"{self.host}/{self.repository}"
        if error.code == http.client.NOT_FOUND:
            return RegistryError(f"there is no such image or tag in {name}")
        if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            return RegistryError(f"this login has no permission to read {name} (HTTP {error.code})")
        return RegistryError(f"{name} answered with HTTP {error.code}")


def _read(request: urllib.request.Request, limit: int, deadline: float) -> Blob:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise RegistryError("the registry took too long")
    try:
        opener = _LOCAL if _scheme(urlsplit(request.full_url).netloc) == "http" else _REMOTE
        with opener.open(request, timeout=min(_READ_TIMEOUT, remaining)) as answer:
            return Blob(_bounded(answer, limit, deadline), answer.headers.get_content_type())
    except urllib.error.HTTPError as error:
        error.close()  # its headers stay readable
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RegistryError(f"{urlsplit(request.full_url).netloc} cannot be reached: {reason}") from None


def _bounded(answer: Any, limit: int, deadline: float) -> bytes:
    data = bytearray()
    while block := answer.read1(_BLOCK):
        data += block
        if len(data) > limit:
            raise RegistryError(f"the registry's answer is larger than {limit} bytes")
        if time.monotonic() > deadline:
            raise RegistryError("the registry took too long")
    return bytes(data)


def _verified(blob: Blob, digest: str) -> Blob:
    if f"sha256:{hashlib.sha256(blob.data).hexdigest()}" != digest:
        raise RegistryError(f"the registry sent content with another digest than {digest}")
    return blob


def check_digest(digest: str) -> str:
    """Return ``digest`` if it is safe as a part of a path.

    Raises:
        RegistryError: it is not a SHA-256 digest.
    """
    if not _DIGEST.fullmatch(digest):
        raise RegistryError(f"{digest!r} is not a sha256 digest")
    return digest


def is_list(blob: Blob) -> bool:
    return blob.kind in _LISTS


def _trusted(url: str) -> SplitResult | None:
    """The parts of a URL with TLS, or of a local URL; None for others."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.netloc and parts.scheme == _scheme(parts.netloc) else None


def _basic(login: Login) -> str:
    return f"Basic {base64.b64encode(f'{login.user}:{login.password}'.encode()).decode()}"


def _scheme(host: str) -> str:
    """The scheme that docker uses: HTTP for local registries only."""
    name = host.rpartition(":")[0] or host
    return "http" if name == "localhost" or re.fullmatch(r"127(\.\d{1,3}){3}", name) else "https"


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to URLs with TLS and, from a local registry, to local URLs."""

    max_redirections = 5

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        parts = _trusted(newurl)
        # A remote registry must not cause requests to local servers.
        if parts is None or (parts.scheme == "http" and urlsplit(req.full_url).scheme != "http"):
            fp.close()
            raise RegistryError(f"the registry redirects to an unsafe URL, {documents.printable(newurl)!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_REMOTE = urllib.request.build_opener(_SafeRedirects)
_LOCAL = urllib.request.build_opener(_SafeRedirects, urllib.request.ProxyHandler({}))
