"""The credentials of a job's role, in the way in which containers get them on the platform.

A container requests them from a service, and they expire, so that a script that never renews them fails sooner or later
(AWS SDKs reference, "Container credential provider").
"""

from __future__ import annotations

import hmac
import json
import re
from datetime import datetime, timedelta, timezone

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.injected_refusals import Refusals
from smdp_launch.localcloud.protocol.protocols import Reply
from smdp_launch.localcloud.protocol.signatures import Credentials, Head, Holder, job_hash

_FOLDER = "/_role/"  # no bucket can have this name
_PATH = re.compile(r"/_role/(?P<job>[0-9a-f]{16})")
#: Clients renew credentials minutes before they expire, so they request new ones for each call.
_LIFE = timedelta(seconds=60)


def environment(url: str, credentials: Credentials, job: str) -> dict[str, str]:
    """Variables that name the service to the AWS clients of a job's hosts."""
    path = f"{_FOLDER}{job_hash(job)}"
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}{path}",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": _token(credentials, path),
    }


def is_requested(head: Head) -> bool:
    return head.path.startswith(_FOLDER)


def answer(head: Head, credentials: Credentials, refusals: Refusals) -> Reply:
    """The credentials, for a request with the job's authorization token. Raises ServiceError for any other."""
    match = _PATH.fullmatch(head.path)
    token = head.one("authorization").encode()
    if match is None or not hmac.compare_digest(token, _token(credentials, head.path).encode()):
        raise ServiceError("AccessDenied", "The authorization token is not that of the job.", 403)
    keys = credentials.of(Holder("role", refusals.role_number(match["job"]), match["job"]))
    answered = {
        "AccessKeyId": keys.access_key,
        "SecretAccessKey": keys.secret_key,
        "Token": "local",
        "Expiration": (datetime.now(timezone.utc) + _LIFE).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return Reply("application/json", json.dumps(answered).encode())


def _token(credentials: Credentials, path: str) -> str:
    return f"{credentials.access_key}.{credentials.derived(path)}"
