"""The package index that CA_REPOSITORY_ARN names: a repository of AWS CodeArtifact, as in the AWS toolkit."""

from __future__ import annotations

import http.client
import json
import re
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Mapping
from urllib.parse import quote, urlsplit

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.fetch.credentials import find_credentials
from smdp_entrypoint.fetch.partitions import dns_suffix
from smdp_entrypoint.fetch.sigv4 import Credentials, Request, signed

VARIABLE = "CA_REPOSITORY_ARN"
_ARN = re.compile(
    r"arn:[a-z0-9-]+:codeartifact:(?P<region>[a-z0-9-]+):(?P<owner>\d{12})"
    r":repository/(?P<domain>[a-z0-9-]+)/(?P<name>[A-Za-z0-9._-]+)"
)
_TIMEOUT_S = 10.0
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_LONGEST_ANSWER = 64 * 1024


@dataclass(frozen=True)
class Repository:
    region: str
    owner: str
    domain: str
    name: str

    @classmethod
    def parse(cls, arn: str) -> Repository:
        match = _ARN.fullmatch(arn)
        if match is None:
            raise ProgramError(
                f"{VARIABLE} {arn[:200]!r} is not the ARN of a CodeArtifact repository. Write it as "
                "arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY."
            )
        return cls(**match.groupdict())


def index_url(arn: str, environ: Mapping[str, str]) -> str:
    """The index URL for pip. It contains a token: pass it in pip's environment and do not log it.

    Raises ProgramError, or SourceError where there are no credentials.
    """
    repository = Repository.parse(arn)
    service = _Service(_endpoint(repository.region, environ), repository.region, find_credentials(environ))
    owner = {"domain": repository.domain, "domain-owner": repository.owner}
    token = service.request("authorizationToken", "POST", "/v1/authorization-token", owner)
    parameters = {**owner, "format": "pypi", "repository": repository.name}
    place = urlsplit(service.request("repositoryEndpoint", "GET", "/v1/repository/endpoint", parameters))
    return f"{place.scheme}://aws:{quote(token, safe='')}@{place.netloc}{place.path.rstrip('/')}/simple/"


def _endpoint(region: str, environ: Mapping[str, str]) -> str:
    own = environ.get("AWS_ENDPOINT_URL_CODEARTIFACT") or environ.get("AWS_ENDPOINT_URL")
    return own or f"https://codeartifact.{region}.{dns_suffix(region)}"


@dataclass(frozen=True)
class _Service:
    endpoint: str
    region: str
    credentials: Credentials

    def request(self, field: str, method: str, path: str, parameters: Mapping[str, str]) -> str:
        """The value of `field` in the response. Raises ProgramError."""
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(parameters.items()))
        status, body = self._with_retries(method, path, query)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        value = answer.get(field) if status == 200 and isinstance(answer, dict) else None
        if not isinstance(value, str):
            detail = body[:300].decode("utf-8", "replace") if status != 200 else f"the response has no {field}"
            raise ProgramError(f"CodeArtifact answered {method} {path} with HTTP {status}: {detail}")
        return value

    def _with_retries(self, method: str, path: str, query: str) -> tuple[int, bytes]:
        attempt = 1
        while True:
            try:
                return self._once(method, path, query)
            except (OSError, http.client.HTTPException) as error:
                if attempt == _ATTEMPTS:
                    raise ProgramError(f"CodeArtifact cannot be reached at {self.endpoint}: {error}.") from error
            time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
            attempt += 1

    def _once(self, method: str, path: str, query: str) -> tuple[int, bytes]:
        parts = urlsplit(self.endpoint)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        request = Request(method, parts.netloc, path, query, "codeartifact")
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        try:
            headers = signed(request, self.region, self.credentials, datetime.now(timezone.utc))
            connection.request(method, f"{path}?{query}", headers=headers)
            response = connection.getresponse()
            body = response.read(_LONGEST_ANSWER)
        finally:
            connection.close()
        if response.status >= 500 or response.status == 429:
            raise OSError(f"HTTP {response.status}")
        return response.status, body
