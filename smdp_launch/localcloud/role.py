"""The credentials of the jobs' role, as a container is given them on the platform: by a service that it may ask, for a
while, so that whoever keeps the first ones for ever is refused one day (AWS SDKs reference, "Container credential
provider")."""

from __future__ import annotations

import hmac
import json
from datetime import datetime, timedelta, timezone

from smdp_launch.localcloud.auth import Credentials, Head, Holder
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocols import Reply
from smdp_launch.localcloud.refusals import Refusals

PATH = "/role"
#: So short that clients, which renew credentials minutes before they expire, ask again each time.
_LIFE = timedelta(seconds=60)


def environment(url: str, credentials: Credentials) -> dict[str, str]:
    """What tells a container's AWS clients where to ask."""
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}{PATH}",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": credentials.derived(PATH),
    }


def answer(head: Head, ours: Credentials, refusals: Refusals) -> Reply:
    """The answer to a container that may ask."""
    if not hmac.compare_digest(head.one("authorization").encode(), ours.derived(PATH).encode()):
        raise ServiceError("AccessDenied", "The authorization token is not this local cloud's.", 403)
    keys = ours.of(Holder("role", refusals.roles))
    given = {
        "AccessKeyId": keys.access_key,
        "SecretAccessKey": keys.secret_key,
        "Token": "local",
        "Expiration": (datetime.now(timezone.utc) + _LIFE).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return Reply("application/json", json.dumps(given).encode())
