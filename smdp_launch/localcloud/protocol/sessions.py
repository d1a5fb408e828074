"""Temporary credentials, as STS issues them for a role or to the caller: keys that expire, with a session token.

The server stores none of them. The token contains the role and the time of expiry, the access key contains the token's
hash, and the secret key is derived from the server's own and the access key. So a changed token has no key.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, token_hash


@dataclass(frozen=True)
class Session:
    """Args:
    role: its name; empty for the caller's own session.
    name: RoleSessionName.
    expires: seconds since 1970.
    """

    role: str
    name: str
    expires: int

    @property
    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.role, self.name, self.expires]).encode()).decode()

    @property
    def has_expired(self) -> bool:
        return time.time() >= self.expires


def issue(credentials: Credentials, session: Session) -> Mapping[str, Any]:
    """The field `Credentials` in the answers of STS."""
    keys = credentials.of(Holder("session", session=token_hash(session.token)))
    return {
        "AccessKeyId": keys.access_key,
        "SecretAccessKey": keys.secret_key,
        "SessionToken": session.token,
        "Expiration": float(session.expires),
    }


def read(token: str) -> Session:
    """Raises ServiceError for a malformed token. Until the request's signature is verified, the token may be forged."""
    try:
        role, name, expires = json.loads(base64.urlsafe_b64decode(token))
        return Session(str(role), str(name), int(expires))
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise ServiceError(
            "InvalidClientTokenId", "The security token included in the request is invalid.", 403
        ) from None
