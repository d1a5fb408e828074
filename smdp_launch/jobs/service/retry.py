"""Retries calls of AWS services: on throttling, on outages and on expired credentials."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from smdp_launch.errors import EnvironmentProblem, Interrupted, ServiceProblem
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import RENEW_CREDENTIALS, ErrorKind, error_kind, reason
from smdp_launch.jobs.service.retry_policy import RetryPolicy, Waiting

_Answer = TypeVar("_Answer")

#: Seconds of an outage after which those that wait for a job or a sweep give up.
LONGEST_OUTAGE = 86400.0
#: Seconds by which a failure of a retry may be late. A longer delay means that this machine slept, on a system whose
#: monotonic clock runs on during sleep.
_LATEST_FAILURE = 600.0


class Outage:
    """The time from the first failed call to the next successful one.

    Args:
        latest: seconds after the start of a retry within which it fails, if it does. The time after a later failure
            counts from this failure, since the machine slept.

    Attributes:
        tries: how many have failed.
        lasted: seconds from the first failure to the last one, without the time in which the machine slept.
    """

    def __init__(
        self, policy: RetryPolicy, clock: Callable[[], float] = time.monotonic, latest: float = _LATEST_FAILURE
    ) -> None:
        self._policy, self._clock, self._latest = policy, clock, latest
        self._since = 0.0  # seconds since 1970
        self._counts_from = self._retry_due = 0.0  # by the clock
        self.tries = 0
        self.lasted = 0.0

    def record_failure(self, what: str, error: Exception) -> Waiting:
        now = self._clock()
        if not self.tries:
            self._since = time.time()
        if not self.tries or now - self._retry_due > self._latest:
            self._counts_from = now
        self.tries += 1
        self.lasted = now - self._counts_from
        waiting = Waiting(what, reason(error), self._since, self._policy.gap(self.tries), error_kind(error))
        self._retry_due = now + waiting.again_in
        return waiting

    def record_success(self) -> float | None:
        """End the outage. Return how many seconds it lasted, sleep included; None if there was none."""
        lasted = time.time() - self._since if self.tries else None
        self.tries, self.lasted = 0, 0.0
        return lasted


@contextmanager
def waiting_for_recovery(clients: Clients, longest: float = LONGEST_OUTAGE) -> Iterator[None]:
    """Inside the context, `call_with_retries` retries calls as a follower does: until an outage, or the time with
    expired credentials, has lasted ``longest`` seconds.

    Args:
        longest: `LONGEST_OUTAGE` at most.
    """
    before = clients.retry_policy
    clients.retry_policy = before.until_recovered(min(longest, LONGEST_OUTAGE))
    try:
        yield
    finally:
        clients.retry_policy = before


def call_with_retries(
    clients: Clients,
    what: str,
    call: Callable[[], _Answer],
    already_done: Callable[[], _Answer | None] | None = None,
    *,
    is_transfer: bool = False,
) -> _Answer:
    """Return the result of ``call``. Retry it after temporary errors and after errors of the credentials.

    Args:
        what: start of the error message, such as ``job x cannot be described``.
        already_done: called before each retry, since the service may have acted and only its answer was lost. A result
            other than None is returned in place of another call.
        is_transfer: the time limit of the retry policy starts at the first failure, since a transfer may take longer.

    Raises:
        ServiceProblem: the service refused, or did not answer within ``clients.retry_policy``.
        EnvironmentProblem: the credentials have expired.
        Interrupted: ``clients.interrupted`` was set before there was an answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    began, first = time.monotonic(), 0.0
    outage = Outage(clients.retry_policy, time.monotonic, math.inf if is_transfer else _LATEST_FAILURE)
    while True:
        try:
            done = already_done() if already_done is not None and outage.tries else None
            return call() if done is None else done
        except (ClientError, BotoCoreError) as error:
            waiting = outage.record_failure(what, error)
            if outage.tries == 1 and not is_transfer:
                first = time.monotonic() - began
            _raise_if_exhausted(clients, waiting, outage.tries, first + outage.lasted, error)
            clients.on_waiting(waiting)
            if clients.interrupted.wait(waiting.again_in):
                raise Interrupted(f"{waiting.what}: interrupted after {waiting.reason}") from error
        clients.renew(waiting.error_kind)


def _raise_if_exhausted(clients: Clients, waiting: Waiting, tries: int, lasted: float, error: Exception) -> None:
    if waiting.error_kind is ErrorKind.FINAL:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason}") from error
    is_late = lasted + waiting.again_in > clients.retry_policy.total
    if waiting.error_kind is ErrorKind.CREDENTIALS and (is_late or tries >= clients.retry_policy.credential_tries):
        raise EnvironmentProblem(f"{waiting.what}: {waiting.reason}; {RENEW_CREDENTIALS}") from error
    if is_late:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason} ({tries} tries in {lasted:.0f} s)") from error


@contextmanager
def as_service_problem(what: str) -> Iterator[None]:
    """Turn botocore's errors into ServiceProblem, with ``what`` in front of the reason."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ServiceProblem(f"{what}: {reason(error)}") from error
