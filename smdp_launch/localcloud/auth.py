"""Who may speak: requests signed (Signature Version 4) with the credentials that this server generated.

The server runs code, so everything that can be known before the body is read is checked before it is read: the
address the client used (a web page that rebinds its name to 127.0.0.1 still sends its own name), that no browser
sent it, and the signature over method, path, query, headers and the hash of the body, which object requests carry in
a header. JSON requests carry no such header: their small bodies are read before the signature can be recomputed.
Query-string signatures are not accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal
from urllib.parse import unquote_plus

from smdp_launch.localcloud.errors import ServiceError

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_ALLOWED_SKEW = timedelta(minutes=15)  # as AWS
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w.-]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[\w;.-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_QUERY_AUTHENTICATION = {"x-amz-signature", "x-amz-algorithm", "x-amz-credential", "awsaccesskeyid", "signature"}
_HOLDER = re.compile(
    r"(?P<key>\w+?)(?:AGENT|ROLE(?P<number>\d{1,9})J(?P<job>[0-9a-f]{16})|SESSION(?P<session>[0-9a-f]{32}))"
)
_BROWSER_HEADERS = {"origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}


@dataclass(frozen=True)
class Holder:
    """Who has a pair of keys: the person, the platform's own agents, or the role of a job, whose keys are replaced now
    and then; `number` says how often they were, and `job` is the job's `mark`. The keys of a session expire: `session`
    is the hash of its token, and `token` the token, once the request's head is read (see `sessions`)."""

    kind: Literal["person", "agent", "role", "session"]
    number: int = 0
    job: str = ""
    session: str = ""
    token: str = ""


def mark(job: str) -> str:
    """Of a job's name, as it stands in keys and addresses."""
    return hashlib.sha256(job.encode()).hexdigest()[:16]


def token_hash(token: str) -> str:
    """Of a session's token, as it stands in the session's access key."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True)
class Credentials:
    """The person's, from which those of the others follow."""

    access_key: str
    secret_key: str

    def of(self, holder: Holder) -> Credentials:
        if holder.kind == "person":
            return self
        name = {"agent": "AGENT", "session": f"SESSION{holder.session}"}.get(
            holder.kind, f"ROLE{holder.number}J{holder.job}"
        )
        return Credentials(f"{self.access_key}{name}", self.derived(name))

    def holder(self, access_key: str) -> Holder | None:
        """Who has the key; None for one that was never given out."""
        if hmac.compare_digest(access_key.encode(), self.access_key.encode()):
            return Holder("person")
        match = _HOLDER.fullmatch(access_key)
        if match is None or not hmac.compare_digest(match["key"].encode(), self.access_key.encode()):
            return None
        if match["session"]:
            return Holder("session", session=match["session"])
        return Holder("role", int(match["number"]), match["job"]) if match["number"] else Holder("agent")

    def derived(self, name: str) -> str:
        """A secret that follows from ours."""
        return hmac.new(self.secret_key.encode(), name.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Head:
    """A request as it came over the wire, before its body: nothing decoded, repeated headers kept apart."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header.lower() == name]

    def one(self, name: str) -> str:
        """The header's value; empty when it is absent or ambiguous."""
        values = self.values(name)
        return values[0].strip() if len(values) == 1 else ""


@dataclass(frozen=True)
class Claim:
    """What the Authorization header says, and who has the key that it names."""

    holder: Holder
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


def service_hint(head: Head) -> str:
    """The service that the request names, unverified: only good for choosing the form of a refusal."""
    match = _AUTHORIZATION.fullmatch(head.one("authorization"))
    return match["service"] if match else ""


def check_origin(head: Head, authority: str) -> None:
    """Refuse requests for another name than `authority` (ADDRESS:PORT) and those that a web page sent."""
    if head.one("host") != authority:
        raise _denied(f"The Host header must be {authority}.")
    if any(name.lower() in _BROWSER_HEADERS for name, _ in head.headers):
        raise _denied("Requests from web pages are not accepted.")
    if not head.target.startswith("/"):
        raise ServiceError("InvalidURI", "The request target must be a path.")


def read_claim(head: Head, credentials: Credentials, now: datetime) -> Claim:
    """Everything about the signature that can be checked without recomputing it."""
    if _QUERY_AUTHENTICATION & {name.lower() for name, _ in _query_pairs(head.query)}:
        raise _denied("Presigned addresses are not accepted; sign the request's headers.")
    match = _AUTHORIZATION.fullmatch(head.one("authorization"))
    if match is None:
        raise ServiceError("AccessDenied", "A Signature Version 4 Authorization header is required.", 403)
    holder = credentials.holder(match["key"])
    if holder is None:
        code = "InvalidAccessKeyId" if match["service"] == "s3" else "InvalidClientTokenId"
        raise ServiceError(code, "This local cloud did not issue that access key.", 403)
    claim = Claim(
        holder=with_token(holder, head.one("x-amz-security-token"), match["service"]),
        date=match["date"],
        region=match["region"],
        service=match["service"],
        signed_headers=tuple(match["headers"].split(";")),
        signature=match["signature"],
    )
    _check_date(head, claim, now)
    _check_coverage(head, claim)
    return claim


def with_token(holder: Holder, token: str, service: str) -> Holder:
    """The holder with the session's token, which has to be the one that the key was issued with."""
    if holder.kind != "session":
        return holder
    if not hmac.compare_digest(token_hash(token), holder.session):
        code = "InvalidToken" if service == "s3" else "InvalidClientTokenId"
        raise ServiceError(code, "The security token included in the request is invalid.", 403)
    return replace(holder, token=token)


def declared_hash(head: Head, claim: Claim) -> str:
    """The hash of the body that an object request signs, or UNSIGNED-PAYLOAD."""
    declared = head.one("x-amz-content-sha256")
    if declared.startswith("STREAMING-"):
        raise ServiceError("NotImplemented", "Chunk-signed bodies are not supported; sign the whole body.", 501)
    if claim.service == "s3" and not declared:
        raise ServiceError("MissingSecurityHeader", "x-amz-content-sha256 is required.")
    return declared


def verify_signature(head: Head, claim: Claim, credentials: Credentials, payload_hash: str) -> None:
    """Recompute the signature over the request with this hash (hexadecimal SHA-256) of its body."""
    expected = _signature(head, claim, credentials.of(claim.holder).secret_key, payload_hash)
    if not hmac.compare_digest(expected, claim.signature):
        raise ServiceError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided.",
            403,
        )


def _denied(message: str) -> ServiceError:
    return ServiceError("AccessDenied", message, 403)


def _check_date(head: Head, claim: Claim, now: datetime) -> None:
    text = head.one("x-amz-date")
    try:
        signed_at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        raise _denied("A signed X-Amz-Date header is required.") from None
    if abs(now - signed_at) > _ALLOWED_SKEW or not text.startswith(claim.date):
        code = "RequestTimeTooSkewed" if claim.service == "s3" else "SignatureDoesNotMatch"
        raise ServiceError(code, f"The request was signed at {text}, which is not now.", 403)


def _check_coverage(head: Head, claim: Claim) -> None:
    """What steers a request must be signed, else it could be changed on the way without a trace."""
    present = {name.lower() for name, _ in head.headers}
    steering = {name for name in present if name.startswith("x-amz-")} | {"host", "x-amz-date"}
    steering |= present & {"content-type", "content-md5"}
    missing = steering - set(claim.signed_headers)
    if missing:
        raise _denied(f"Headers that must be signed are not: {', '.join(sorted(missing))}.")


def _query_pairs(query: str) -> list[tuple[str, str]]:
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return [(unquote_plus(name), value) for name, _, value in pairs]


def _canonical_query(query: str) -> str:
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _canonical_headers(head: Head, names: Iterable[str]) -> str:
    lines = (f"{name}:{','.join(' '.join(value.split()) for value in head.values(name))}" for name in names)
    return "\n".join(lines) + "\n"


def _signature(head: Head, claim: Claim, secret: str, payload_hash: str) -> str:
    request = "\n".join(
        (
            head.method.upper(),
            head.path,
            _canonical_query(head.query),
            _canonical_headers(head, claim.signed_headers),
            ";".join(claim.signed_headers),
            payload_hash,
        )
    )
    scope = f"{claim.date}/{claim.region}/{claim.service}/aws4_request"
    digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{head.one('x-amz-date')}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in (claim.date, claim.region, claim.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
