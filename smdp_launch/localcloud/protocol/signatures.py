"""Check that requests are signed (Signature Version 4) with the credentials that this server generated.

The server runs code, so each check comes as early as possible. Before the body is read it checks the address in the
Host header (a web page that rebinds its name to 127.0.0.1 still sends its own name), that no browser sent the request,
and the signature over method, path, query, headers and the hash of the body. Object requests have that hash in a
header. JSON requests do not: their small bodies are read before the signature can be recomputed. `presigned` has the
signatures in query strings, `chunks` those of the chunks of a body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

from smdp_launch.localcloud.errors import ServiceError

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
#: Forms of a body in chunks; the value is whether trailing headers follow the chunks.
STREAMING = {
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD": False,
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER": True,
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER": True,
}
ALLOWED_SKEW = timedelta(minutes=15)  # as AWS
#: Services with AWS JSON, which have codes of their own for unknown keys and wrong clocks, with status 400. Quoted in
#: https://github.com/aws/aws-sdk-php/issues/1114 (ECR, keys), https://github.com/JuliaCloud/AWS.jl/issues/206 (clocks)
#: and https://github.com/aws/amazon-sagemaker-operator-for-k8s/issues/99 (SageMaker, keys).
_JSON = frozenset({"ecr", "logs", "sagemaker"})
_INVALID_TOKEN = "The security token included in the request is invalid."  # noqa: S105 (a message)
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w.-]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[\w;.-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_HOLDER = re.compile(
    r"(?P<key>\w+?)(?:AGENT(?:J(?P<served>[0-9a-f]{16}))?|ROLE(?P<number>\d{1,9})J(?P<job>[0-9a-f]{16})"
    r"|SESSION(?P<session>[0-9a-f]{32}))"
)
_BROWSER_HEADERS = {"origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}


@dataclass(frozen=True)
class Holder:
    """The holder of a pair of keys.

    Args:
        kind: the user, an agent of the platform (a supervisor), the role of a job, or a temporary session.
        number: of a role: how often its keys have expired.
        job: the `job_hash` of the role's job, or of the job that an agent serves.
        session: the hash of the session's token, see `sessions`.
        token: the session's token, once the request's head is read.
    """

    kind: Literal["user", "agent", "role", "session"]
    number: int = 0
    job: str = ""
    session: str = ""
    token: str = ""


def job_hash(job: str) -> str:
    """The hash of a job's name that is part of keys and addresses."""
    return hashlib.sha256(job.encode()).hexdigest()[:16]


def token_hash(token: str) -> str:
    """The hash of a session's token that is part of the session's access key."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True)
class Credentials:
    """The user's credentials, from which those of the other holders are derived."""

    access_key: str
    secret_key: str

    def of(self, holder: Holder) -> Credentials:
        if holder.kind == "user":
            return self
        names = {
            "agent": f"AGENTJ{holder.job}" if holder.job else "AGENT",
            "role": f"ROLE{holder.number}J{holder.job}",
            "session": f"SESSION{holder.session}",
        }
        name = names[holder.kind]
        return Credentials(f"{self.access_key}{name}", self.derived(name))

    def holder(self, access_key: str) -> Holder | None:
        """The holder of the access key; None for a key that this server did not issue."""
        if hmac.compare_digest(access_key.encode(), self.access_key.encode()):
            return Holder("user")
        match = _HOLDER.fullmatch(access_key)
        if match is None or not hmac.compare_digest(match["key"].encode(), self.access_key.encode()):
            return None
        if match["session"]:
            return Holder("session", session=match["session"])
        if match["number"]:
            return Holder("role", int(match["number"]), match["job"])
        return Holder("agent", job=match["served"] or "")

    def derived(self, name: str) -> str:
        """A secret that is derived from the secret key."""
        return hmac.new(self.secret_key.encode(), name.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Head:
    """The head of a request as received: nothing is decoded, repeated headers are separate."""

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
        """The header's value; empty where it is absent or repeated."""
        values = self.values(name)
        return values[0].strip() if len(values) == 1 else ""


@dataclass(frozen=True)
class Claim:
    """What a request states about its signature, and the holder of the key that it names."""

    holder: Holder
    access_key: str
    timestamp: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"

    def signing_key(self, credentials: Credentials) -> bytes:
        key = f"AWS4{credentials.of(self.holder).secret_key}".encode()
        for part in self.scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key


def named_service(head: Head) -> str:
    """The service in the Authorization header, unverified: use it only to choose the form of a refusal."""
    match = _AUTHORIZATION.fullmatch(head.one("authorization"))
    return match["service"] if match else ""


def check_origin(head: Head, authority: str) -> None:
    """Raises ServiceError for a Host header other than `authority` (ADDRESS:PORT) and for requests of web pages."""
    if head.one("host") != authority:
        raise _denied(f"The Host header must be {authority}.")
    if any(name.lower() in _BROWSER_HEADERS for name, _ in head.headers):
        raise _denied("Requests from web pages are not accepted.")
    if not head.target.startswith("/"):
        raise ServiceError("InvalidURI", "The request target must be a path.")


def read_claim(head: Head, credentials: Credentials, now: datetime) -> Claim:
    """Read the Authorization header. Raises ServiceError for all that can be checked without recomputing it."""
    match = _AUTHORIZATION.fullmatch(head.one("authorization"))
    if match is None:
        raise ServiceError("AccessDenied", "A Signature Version 4 Authorization header is required.", 403)
    claim = Claim(
        holder=with_token(
            holder_of(match["key"], match["service"], credentials), head.one("x-amz-security-token"), match["service"]
        ),
        access_key=match["key"],
        timestamp=head.one("x-amz-date"),
        date=match["date"],
        region=match["region"],
        service=match["service"],
        signed_headers=tuple(match["headers"].split(";")),
        signature=match["signature"],
    )
    _check_date(claim, now)
    _check_coverage(head, claim)
    return claim


def with_token(holder: Holder, token: str, service: str) -> Holder:
    """The holder with the session's token. Raises ServiceError unless the key was issued with that token."""
    if holder.kind != "session":
        return holder
    if not hmac.compare_digest(token_hash(token), holder.session):
        raise ServiceError("InvalidToken", _INVALID_TOKEN, 403) if service == "s3" else _unknown_key(service)
    return replace(holder, token=token)


def holder_of(access_key: str, service: str, credentials: Credentials) -> Holder:
    holder = credentials.holder(access_key)
    if holder is not None:
        return holder
    if service == "s3":
        details = {"AWSAccessKeyId": access_key}
        raise ServiceError("InvalidAccessKeyId", "This local cloud did not issue that access key.", 403, details)
    raise _unknown_key(service)


def _unknown_key(service: str) -> ServiceError:
    if service in _JSON:
        return ServiceError("UnrecognizedClientException", _INVALID_TOKEN)
    return ServiceError("InvalidClientTokenId", _INVALID_TOKEN, 403)


def declared_hash(head: Head, claim: Claim) -> str:
    """The body's hash that an object request signs; also UNSIGNED-PAYLOAD or one of `STREAMING`."""
    declared = head.one("x-amz-content-sha256")
    if claim.service == "s3":
        check_hash(declared)
    return declared


def check_hash(declared: str) -> None:
    """Raises ServiceError for a form of body that the object service does not support."""
    if not declared:
        raise ServiceError("MissingSecurityHeader", "x-amz-content-sha256 is required.")
    if declared.startswith("STREAMING-") and declared not in STREAMING:
        known = ", ".join(STREAMING)
        raise ServiceError(
            "NotImplemented", f"Bodies of the form {declared} are not supported; use one of {known}.", 501
        )


def verify_signature(head: Head, claim: Claim, credentials: Credentials, payload_hash: str) -> None:
    """Raises ServiceError unless the signature is right for `payload_hash`, the body's hexadecimal SHA-256."""
    request = _canonical_request(head, claim, payload_hash)
    digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
    text = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{digest}"
    expected = hmac.new(claim.signing_key(credentials), text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, claim.signature):
        raise mismatch(claim, text, CanonicalRequest=request)


def mismatch(claim: Claim, text: str, **more: str) -> ServiceError:
    """The error for a wrong signature. Like that of S3 it contains the signed text, so that a client can be fixed."""
    details = (
        {}
        if claim.service != "s3"
        else {
            "AWSAccessKeyId": claim.access_key,
            "StringToSign": text,
            "SignatureProvided": claim.signature,
            **more,
        }
    )
    return ServiceError(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided.",
        403,
        details,
    )


def _denied(message: str) -> ServiceError:
    return ServiceError("AccessDenied", message, 403)


def _check_date(claim: Claim, now: datetime) -> None:
    signed_at = read_time(claim.timestamp)
    if signed_at is None:
        raise _denied("A signed X-Amz-Date header is required.")
    if not claim.timestamp.startswith(claim.date):
        text = f"The credential is for {claim.date}, and the request was signed at {claim.timestamp}."
        raise ServiceError("SignatureDoesNotMatch", text, 403)
    if abs(now - signed_at) > ALLOWED_SKEW:
        raise _wrong_clock(claim, is_late=signed_at < now, now=now)


def _wrong_clock(claim: Claim, *, is_late: bool, now: datetime) -> ServiceError:
    """The error for a clock that differs from AWS's. STS has this message too:
    https://github.com/aws/aws-cli/issues/6676."""
    if claim.service == "s3":
        text = "The difference between the request time and the current time is too large."
        return ServiceError("RequestTimeTooSkewed", text, 403)
    minutes = ALLOWED_SKEW // timedelta(minutes=1)
    if is_late:
        limit = f"earlier than {_written(now - ALLOWED_SKEW)} ({_written(now)} - {minutes} min.)"
        text = f"Signature expired: {claim.timestamp} is now {limit}"
    else:
        limit = f"later than {_written(now + ALLOWED_SKEW)} ({_written(now)} + {minutes} min.)"
        text = f"Signature not yet current: {claim.timestamp} is still {limit}"
    if claim.service in _JSON:
        return ServiceError("InvalidSignatureException", text)
    return ServiceError("SignatureDoesNotMatch", text, 403)


def _written(time: datetime) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ")


def read_time(text: str) -> datetime | None:
    """The time in the form that signatures use; None for another text."""
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _check_coverage(head: Head, claim: Claim) -> None:
    """Headers that change the meaning of a request must be signed. Raises ServiceError for those that are not."""
    missing = unsigned(head, claim, {"x-amz-date"} | present(head) & {"content-type", "content-md5"})
    if missing:
        raise _denied(f"Headers that must be signed are not: {', '.join(missing)}.")


def present(head: Head) -> set[str]:
    return {name.lower() for name, _ in head.headers}


def unsigned(head: Head, claim: Claim, more: Iterable[str] = ()) -> list[str]:
    """The headers that must be signed and are not: Host, all that begin with X-Amz-, and `more`."""
    required = {name for name in present(head) if name.startswith("x-amz-")} | {"host", *more}
    return sorted(required - set(claim.signed_headers))


def _canonical_query(query: str) -> str:
    """Sorted, and without the signature, which does not sign itself."""
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, value in pairs if name != "X-Amz-Signature")


def canonical_value(head: Head, name: str) -> str:
    return ",".join(" ".join(value.split()) for value in head.values(name))


def _canonical_request(head: Head, claim: Claim, payload_hash: str) -> str:
    return "\n".join(
        (
            head.method.upper(),
            head.path,
            _canonical_query(head.query),
            *(f"{name}:{canonical_value(head, name)}" for name in claim.signed_headers),
            "",
            ";".join(claim.signed_headers),
            payload_hash,
        )
    )
