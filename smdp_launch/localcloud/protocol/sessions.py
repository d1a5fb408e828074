"""Temporary credentials, as STS gives them for a role or to the caller: keys that expire, with a session token.

Nothing of them is stored. The token says for whom they are, and until when; the access key has the token's hash, and
the secret key follows from ours and that access key, so that a changed token has no key.
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
    role: its name; empty where the caller asked for keys of their own.
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


def issue(ours: Credentials, session: Session) -> Mapping[str, Any]:
    """`Credentials` of the answers of STS."""
    keys = ours.of(Holder("session", session=token_hash(session.token)))
    return {
        "AccessKeyId": keys.access_key,
        "SecretAccessKey": keys.secret_key,
        "SessionToken": session.token,
        "Expiration": float(session.expires),
    }


def read(token: str) -> Session:
    """Raises ServiceError for what is no token. A request's signature proves that the token is ours: until it is
    verified the token may be anything."""
    try:
        role, name, expires = json.loads(base64.urlsafe_b64decode(token))
        return Session(str(role), str(name), int(expires))
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise ServiceError(
            "InvalidClientTokenId", "The security token included in the request is invalid.", 403
        ) from None
