"""Calls that the local cloud refuses for a while, as AWS does when it is asked too often or credentials expire.

A job's supervisor says from when to when; the server refuses, and counts. The platform's own agents, which fetch and
store for the jobs, are never refused.
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

_THROUGH = 4  # of as many calls of a service one is answered while the others are refused


@dataclass(frozen=True)
class Refusal:
    """Args:
    until: seconds since 1970.
    job: the `mark` of the job that it is for, whose role's credentials have expired if the kind is ``expire``.
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
    """Answer every call again, unless they are refused for another job."""
    found = read_json(state.refusal)
    if found and found["job"] == job:
        for path in (state.refusal, state.refused):
            path.unlink(missing_ok=True)


class Refusals:
    """The server's side; any thread may ask."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._now: Refusal | None = None
        self._asked: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def roles(self, job: str) -> int:
        """How often the credentials of the job's role have expired: what is given out now has this number."""
        with self._lock:
            self._look()
            return self._expired(job)

    def _expired(self, job: str) -> int:
        now = self._now
        return 1 if now is not None and now.kind == "expire" and now.job == job else 0

    def check(self, claim: Claim) -> None:
        """Raises ServiceError where the call is to be refused."""
        if claim.holder.kind == "agent":
            return
        if claim.holder.kind == "session" and sessions.read(claim.holder.token).has_expired:
            raise _expired(s3=claim.service == "s3")
        with self._lock:
            self._look()
            error = self._refusal(claim)
            if error is not None:
                self._refused[claim.service] += 1
                write_json(self._state.refused, self._refused)
        if error is not None:
            raise error

    def _look(self) -> None:
        try:
            status = self._state.refusal.stat()
        except OSError:
            self._stamp = self._now = None
            return
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            found = read_json(self._state.refusal)
            self._stamp, self._now = stamp, Refusal(**found) if found else None
            self._asked.clear()
            self._refused.clear()

    def _refusal(self, claim: Claim) -> ServiceError | None:
        now, holder = self._now, claim.holder
        if now is None:
            return None
        s3 = claim.service == "s3"
        if holder.kind == "role" and holder.number < self._expired(holder.job):
            return _expired(s3=s3)
        if time.time() > now.until:
            return None
        if now.kind == "expire":
            return _expired(s3=s3) if holder.kind == "person" else None
        self._asked[claim.service] += 1
        return None if self._asked[claim.service] % _THROUGH == 0 else _throttled(s3=s3)


def _expired(*, s3: bool) -> ServiceError:
    if s3:
        return ServiceError("ExpiredToken", "The provided token has expired.")
    return ServiceError("ExpiredTokenException", "The security token included in the request is expired")


def _throttled(*, s3: bool) -> ServiceError:
    if s3:
        return ServiceError("SlowDown", "Please reduce your request rate.", 503)
    return ServiceError("ThrottlingException", "Rate exceeded")
