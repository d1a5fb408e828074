"""Presigned URLs: object requests with the signature and its time of validity in the query string.

Signature Version 4 (`X-Amz-Signature`) is the current form. boto3 still writes Version 2 (`Signature`, HMAC-SHA1) for a
client without `signature_version="s3v4"`, so both are accepted. Version 2 signs method, path, Content-MD5,
Content-Type, the X-Amz- headers and the parameters in `_SIGNED`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote, unquote_plus

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol import signatures
from smdp_launch.localcloud.protocol.signatures import Claim, Credentials, Head

_LONGEST = 604_800  # seconds, a week: the service's limit
_PARAMETERS = (
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires",
)  # fmt: skip
_OLD_PARAMETERS = ("Signature", "Expires", "AWSAccessKeyId")
#: Parameters that belong to a signature and not to the request itself.
_OF_SIGNATURES = {
    *_PARAMETERS,
    *_OLD_PARAMETERS,
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
    "x-amz-security-token",
}
_OF_CONTENT = ("content-md5", "content-type")
_CREDENTIAL = re.compile(r"(?P<key>\w+)/(?P<date>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w.-]+)/aws4_request")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_SECONDS = re.compile(r"-?[0-9]{1,12}")
#: Parameters that Version 2 signs with the path.
_SIGNED = {
    "acl", "delete", "lifecycle", "location", "logging", "notification", "partNumber", "policy", "requestPayment",
    "response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language",
    "response-content-type", "response-expires", "tagging", "torrent", "uploadId", "uploads", "versionId",
    "versioning", "versions", "website",
}  # fmt: skip


def is_presigned(head: Head) -> bool:
    names = _query(head).keys()
    return bool(names & {"X-Amz-Algorithm", "X-Amz-Signature", "X-Amz-Credential", "AWSAccessKeyId", "Signature"})


def read_claim(head: Head, credentials: Credentials, now: datetime) -> Claim:
    """Read the URL's signature. Raises ServiceError for all that can be checked without recomputing it."""
    if head.values("authorization"):
        raise ServiceError(
            "InvalidArgument",
            "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string "
            "parameter or the Authorization header should be specified",
        )
    query = _query(head)
    if _is_old(query):
        return _read_old_claim(query, credentials, now)
    return _read_claim(head, query, credentials, now)


def declared_hash(head: Head, claim: Claim) -> str:
    """The signed hash of the body; UNSIGNED-PAYLOAD for the usual URL, which does not sign the body."""
    declared = (
        head.one("x-amz-content-sha256") or _query(head).get("X-Amz-Content-Sha256") or signatures.UNSIGNED_PAYLOAD
    )
    signatures.check_hash(declared)
    if declared in signatures.STREAMING and _is_of_old(claim):
        raise ServiceError("InvalidRequest", "A presigned URL of Signature Version 2 cannot sign a body in chunks.")
    return declared


def verify_signature(head: Head, claim: Claim, credentials: Credentials, payload_hash: str) -> None:
    if not _is_of_old(claim):
        signatures.verify_signature(head, claim, credentials, payload_hash)
        return
    secret = credentials.of(claim.holder).secret_key.encode()
    texts = [_old_string_to_sign(head, claim, path) for path in _signed_paths(head.path)]
    if not any(hmac.compare_digest(_old_signature(secret, text), claim.signature.encode()) for text in texts):
        raise signatures.mismatch(claim, texts[0])


def _old_signature(secret: bytes, text: str) -> bytes:
    digest = hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha1).digest()
    return base64.b64encode(digest)


def _signed_paths(path: str) -> list[str]:
    """The paths that the client may have signed: botocore signs a bucket's path with a slash that it does not send."""
    return [path] if path.count("/") > 1 else [path, f"{path}/"]


def unwrap(environ: dict[str, Any], head: Head, claim: Claim) -> None:
    """Convert a verified request to one with an Authorization header.

    Parameters of the signature are removed. Parameters that stand for a header become that header unless it exists.
    """
    for name, value in _hoisted(head).items():
        variable = "CONTENT_TYPE" if name == "content-type" else f"HTTP_{name.upper().replace('-', '_')}"
        environ.setdefault(variable, value)
    environ["QUERY_STRING"] = "&".join(pair for name, pair in _pairs(head) if not _is_extra(name))
    # moto treats a request without the header as anonymous.
    environ["HTTP_AUTHORIZATION"] = f"{signatures.ALGORITHM} Credential={claim.access_key}/{claim.scope}"


def _pairs(head: Head) -> list[tuple[str, str]]:
    """The decoded name of each parameter, with the parameter as received."""
    return [(unquote_plus(pair.partition("=")[0]), pair) for pair in head.query.split("&") if pair]


def _is_extra(name: str) -> bool:
    """Whether the parameter exists only because the request is presigned."""
    return name in _OF_SIGNATURES or name.lower() in _OF_CONTENT or name.lower().startswith("x-amz-")


def _hoisted(head: Head) -> dict[str, str]:
    """The headers in the query string, with names in lower case."""
    query = {name: value for name, value in _query(head).items() if name not in _OF_SIGNATURES and _is_extra(name)}
    return {name.lower(): value for name, value in query.items()}


def _is_of_old(claim: Claim) -> bool:
    """Whether it is a signature of Version 2, which has no scope and so no date."""
    return not claim.date


def _query(head: Head) -> dict[str, str]:
    return {name: unquote(pair.partition("=")[2]) for name, pair in _pairs(head)}


def _is_old(query: dict[str, str]) -> bool:
    return not any(name in query for name in ("X-Amz-Algorithm", "X-Amz-Signature", "X-Amz-Credential"))


def _read_claim(head: Head, query: dict[str, str], credentials: Credentials, now: datetime) -> Claim:
    if any(not query.get(name) for name in _PARAMETERS):
        raise _malformed(f"Query-string authentication version 4 requires the {_listed(_PARAMETERS)} parameters.")
    if query["X-Amz-Algorithm"] != signatures.ALGORITHM:
        raise _malformed(f'X-Amz-Algorithm only supports "{signatures.ALGORITHM}"')
    match = _CREDENTIAL.fullmatch(query["X-Amz-Credential"])
    if match is None:
        raise _malformed(
            "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; expecting "
            '"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".'
        )
    if match["service"] != "s3":
        raise _malformed(
            f'Error parsing the X-Amz-Credential parameter; incorrect service "{match["service"]}". This endpoint '
            'belongs to "s3".'
        )
    if not _SIGNATURE.fullmatch(query["X-Amz-Signature"]):
        raise _malformed("X-Amz-Signature must be 64 hexadecimal digits.")
    claim = Claim(
        holder=signatures.with_token(
            signatures.holder_of(match["key"], "s3", credentials), query.get("X-Amz-Security-Token", ""), "s3"
        ),
        access_key=match["key"],
        timestamp=query["X-Amz-Date"],
        date=match["date"],
        region=match["region"],
        service="s3",
        signed_headers=tuple(query["X-Amz-SignedHeaders"].split(";")),
        signature=query["X-Amz-Signature"],
    )
    _check_period(claim, query["X-Amz-Expires"], now)
    missing = signatures.unsigned(head, claim)
    if missing:
        details = {"HeadersNotSigned": ", ".join(missing)}
        raise _denied("There were headers present in the request which were not signed", **details)
    return claim


def _check_period(claim: Claim, text: str, now: datetime) -> None:
    signed_at = signatures.read_time(claim.timestamp)
    if signed_at is None:
        raise _malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    if not claim.timestamp.startswith(claim.date):
        raise _malformed(
            f"Invalid credential date {claim.date}. This date is not the same as X-Amz-Date: {claim.timestamp[:8]}."
        )
    if not _SECONDS.fullmatch(text):
        raise _malformed("X-Amz-Expires should be a number")
    seconds = int(text)
    if seconds < 1:
        raise _malformed("X-Amz-Expires must be non-negative" if seconds < 0 else "X-Amz-Expires must be at least 1")
    if seconds > _LONGEST:
        raise _malformed(f"X-Amz-Expires must be less than a week (in seconds) that is {_LONGEST}")
    if signed_at - now > signatures.ALLOWED_SKEW:
        raise _denied("Request is not yet valid", ServerTime=_written(now))
    _check_end(signed_at + timedelta(seconds=seconds), now, {"X-Amz-Expires": text})


def _check_end(end: datetime, now: datetime, details: dict[str, str]) -> None:
    if now > end:
        raise _denied("Request has expired", **details, Expires=_written(end), ServerTime=_written(now))


def _read_old_claim(query: dict[str, str], credentials: Credentials, now: datetime) -> Claim:
    if any(not query.get(name) for name in _OLD_PARAMETERS):
        raise _denied(f"Query-string authentication requires the {_listed(_OLD_PARAMETERS)} parameters")
    text = query["Expires"]
    if not _SECONDS.fullmatch(text) or not 0 <= int(text) <= datetime.max.replace(tzinfo=timezone.utc).timestamp() - 1:
        raise _denied(f"Invalid date (should be seconds since epoch): {text[:50]}")
    claim = Claim(
        holder=signatures.with_token(
            signatures.holder_of(query["AWSAccessKeyId"], "s3", credentials),
            query.get("x-amz-security-token", ""),
            "s3",
        ),
        access_key=query["AWSAccessKeyId"],
        timestamp=text,
        date="",
        region="",
        service="s3",
        signed_headers=(),
        signature=query["Signature"],
    )
    _check_end(datetime.fromtimestamp(int(text), timezone.utc), now, {})
    return claim


def _old_string_to_sign(head: Head, claim: Claim, path: str) -> str:
    """Headers in the query string count as headers."""
    token = _query(head).get("x-amz-security-token")
    hoisted = _hoisted(head) | ({} if token is None else {"x-amz-security-token": token})
    present = signatures.present(head)

    def value(name: str) -> str:
        return signatures.canonical_value(head, name) if name in present else hoisted.get(name, "")

    amz = [f"{name}:{value(name)}" for name in sorted(present | hoisted.keys()) if name.startswith("x-amz-")]
    return "\n".join((head.method.upper(), *map(value, _OF_CONTENT), claim.timestamp, *amz, _old_resource(head, path)))


def _old_resource(head: Head, path: str) -> str:
    signed = sorted((name, pair.partition("=")) for name, pair in _pairs(head) if name in _SIGNED)
    query = "&".join(f"{name}{equals}{unquote(value)}" for name, (_, equals, value) in signed)
    return f"{path}?{query}" if query else path


def _written(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if len(names) == 3 else f"{', '.join(first)}, and {last}"


def _malformed(message: str) -> ServiceError:
    return ServiceError("AuthorizationQueryParametersError", message)


def _denied(message: str, **details: str) -> ServiceError:
    return ServiceError("AccessDenied", message, 403, details)
