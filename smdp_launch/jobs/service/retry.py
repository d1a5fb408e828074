"""Retries calls of AWS services: on throttling, on outages and on expired credentials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from smdp_launch.errors import EnvironmentProblem, Interrupted, ServiceProblem
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind, reason
from smdp_launch.jobs.service.retry_policy import RetryPolicy, Waiting

_Answer = TypeVar("_Answer")


class Outage:
    """The time from the first failed call to the next successful one."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._since = 0.0  # seconds since 1970
        self.tries = 0

    def record_failure(self, what: str, error: Exception) -> Waiting:
        self._since = self._since if self.tries else time.time()
        self.tries += 1
        return Waiting(what, reason(error), self._since, self._policy.gap(self.tries), error_kind(error))

    def record_success(self) -> float | None:
        """End the outage. Return how many seconds it lasted; None if there was none."""
        lasted = time.time() - self._since if self.tries else None
        self.tries = 0
        return lasted


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

    began, outage = time.time(), Outage(clients.retry_policy)
    while True:
        try:
            done = already_done() if already_done is not None and outage.tries else None
            return call() if done is None else done
        except (ClientError, BotoCoreError) as error:
            waiting = outage.record_failure(what, error)
            _raise_if_exhausted(clients, waiting, outage.tries, waiting.since if is_transfer else began, error)
            clients.on_waiting(waiting)
            if clients.interrupted.wait(waiting.again_in):
                raise Interrupted(f"{waiting.what}: interrupted after {waiting.reason}") from error
        clients.renew(waiting.error_kind)


def _raise_if_exhausted(clients: Clients, waiting: Waiting, tries: int, began: float, error: Exception) -> None:
    if waiting.error_kind is ErrorKind.FINAL:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason}") from error
    if waiting.error_kind is ErrorKind.CREDENTIALS and tries >= clients.retry_policy.credential_tries:
        raise EnvironmentProblem(
            f"{waiting.what}: {waiting.reason}; renew your AWS credentials, for example with `aws sso login`"
        ) from error
    lasted = time.time() - began
    if lasted + waiting.again_in > clients.retry_policy.total:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason} ({tries} tries in {lasted:.0f} s)") from error


@contextmanager
def as_service_problem(what: str) -> Iterator[None]:
    """Turn botocore's errors into ServiceProblem, with ``what`` in front of the reason."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ServiceProblem(f"{what}: {reason(error)}") from error
