"""Who makes the call that this thread answers, and in which region. The gateway sets it around each action, so that
services read it without every action having another parameter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.protocol.signatures import Claim, Holder

_PERSON = Holder("person")
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
    return claim.holder if claim is not None else _PERSON


def region() -> str:
    """That of the request's signature; our own outside a request."""
    claim = _claim.get()
    return claim.region if claim is not None else REGION
