"""Calls that the local cloud refuses for a while, as AWS does for too many requests and for expired credentials.

A job's supervisor begins and ends the refusal; the server refuses and counts. The calls of supervisors, which download
and upload for their jobs, are never refused.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Literal

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol import sessions
from smdp_launch.localcloud.protocol.signatures import Claim

_ANSWERED = 4  # while calls are throttled, each fourth call of a service is answered


@dataclass(frozen=True)
class Refusal:
    """Args:
    until: seconds since 1970.
    job: the `job_hash` of the job with the fault. For the kind ``expire``, the credentials of its role have expired.
    """

    kind: Literal["throttle", "expire"]
    until: float
    job: str


def begin(state: StateFolder, refusal: Refusal) -> None:
    state.refused.unlink(missing_ok=True)
    write_json(state.refusal, asdict(refusal))


def counted(state: StateFolder) -> dict[str, int]:
    """How many calls were refused, by service."""
    found: dict[str, int] = read_json(state.refused) or {}
    return found


def end(state: StateFolder, job: str) -> None:
    """Answer every call again, unless calls are refused for another job."""
    refusal = read_json(state.refusal)
    if refusal and refusal["job"] == job:
        for path in (state.refusal, state.refused):
            path.unlink(missing_ok=True)


class Refusals:
    """The server's side. Any thread may call the methods."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._current: Refusal | None = None
        self._calls: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def role_number(self, job: str) -> int:
        """How often the credentials of the job's role have expired, which is the number of the next ones."""
        with self._lock:
            self._update()
            return self._expired(job)

    def _expired(self, job: str) -> int:
        current = self._current
        return 1 if current is not None and current.kind == "expire" and current.job == job else 0

    def check(self, claim: Claim) -> None:
        """Raises ServiceError where the call must be refused."""
        if claim.holder.kind == "agent":
            return
        if claim.holder.kind == "session" and sessions.read(claim.holder.token).has_expired:
            raise _expired(s3=claim.service == "s3")
        with self._lock:
            self._update()
            error = self._refusal(claim)
            if error is not None:
                self._refused[claim.service] += 1
                write_json(self._state.refused, self._refused)
        if error is not None:
            raise error

    def _update(self) -> None:
        """Read the file where it has changed."""
        try:
            status = self._state.refusal.stat()
        except OSError:
            self._stamp = self._current = None
            return
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            record = read_json(self._state.refusal)
            self._stamp, self._current = stamp, Refusal(**record) if record else None
            self._calls.clear()
            self._refused.clear()

    def _refusal(self, claim: Claim) -> ServiceError | None:
        current, holder = self._current, claim.holder
        if current is None:
            return None
        s3 = claim.service == "s3"
        if holder.kind == "role" and holder.number < self._expired(holder.job):
            return _expired(s3=s3)
        if time.time() > current.until:
            return None
        if current.kind == "expire":
            return _expired(s3=s3) if holder.kind == "user" else None
        self._calls[claim.service] += 1
        return None if self._calls[claim.service] % _ANSWERED == 0 else _throttled(s3=s3)


def _expired(*, s3: bool) -> ServiceError:
    if s3:
        return ServiceError("ExpiredToken", "The provided token has expired.")
    return ServiceError("ExpiredTokenException", "The security token included in the request is expired")


def _throttled(*, s3: bool) -> ServiceError:
    if s3:
        return ServiceError("SlowDown", "Please reduce your request rate.", 503)
    return ServiceError("ThrottlingException", "Rate exceeded")
