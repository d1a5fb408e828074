"""The caller of the call that this thread answers, and the call's region.

The gateway sets both around each action. Services read them here, so that actions need no additional parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.protocol.signatures import Claim, Holder

_USER = Holder("user")
_claim: ContextVar[Claim | None] = ContextVar("claim", default=None)


@contextmanager
def acting(claim: Claim) -> Iterator[None]:
    token = _claim.set(claim)
    try:
        yield
    finally:
        _claim.reset(token)


def holder() -> Holder:
    claim = _claim.get()
    return claim.holder if claim is not None else _USER


def region() -> str:
    """The region of the request's signature; the default region outside a request."""
    claim = _claim.get()
    return claim.region if claim is not None else REGION
