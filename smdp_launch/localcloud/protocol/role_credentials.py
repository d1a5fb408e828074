"""The credentials of a job's role, as a container is given them on the platform: by a service that it may ask, for a
while, so that whoever keeps the first ones for ever is refused one day (AWS SDKs reference, "Container credential
provider")."""

from __future__ import annotations

import hmac
import json
import re
from datetime import datetime, timedelta, timezone

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.injected_refusals import Refusals
from smdp_launch.localcloud.protocol.protocols import Reply
from smdp_launch.localcloud.protocol.signatures import Credentials, Head, Holder, mark

_FOLDER = "/_role/"  # no bucket can have this name
_PATH = re.compile(r"/_role/(?P<job>[0-9a-f]{16})")
#: So short that clients, which renew credentials minutes before they expire, ask again each time.
_LIFE = timedelta(seconds=60)


def environment(url: str, credentials: Credentials, job: str) -> dict[str, str]:
    """What tells the AWS clients of a job's hosts where to ask."""
    path = f"{_FOLDER}{mark(job)}"
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}{path}",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": _token(credentials, path),
    }


def is_asked_for(head: Head) -> bool:
    return head.path.startswith(_FOLDER)


def answer(head: Head, ours: Credentials, refusals: Refusals) -> Reply:
    """To a host that may ask."""
    match = _PATH.fullmatch(head.path)
    token = head.one("authorization").encode()
    if match is None or not hmac.compare_digest(token, _token(ours, head.path).encode()):
        raise ServiceError("AccessDenied", "The authorization token is not one of that job.", 403)
    keys = ours.of(Holder("role", refusals.roles(match["job"]), match["job"]))
    given = {
        "AccessKeyId": keys.access_key,
        "SecretAccessKey": keys.secret_key,
        "Token": "local",
        "Expiration": (datetime.now(timezone.utc) + _LIFE).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return Reply("application/json", json.dumps(given).encode())


def _token(credentials: Credentials, path: str) -> str:
    return f"{credentials.access_key}.{credentials.derived(path)}"
