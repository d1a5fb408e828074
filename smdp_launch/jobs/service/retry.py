"""Asking a service that may be busy, out of reach, or tired of our credentials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from smdp_launch.errors import EnvironmentProblem, Interrupted, ServiceProblem
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import Trouble, reason, trouble
from smdp_launch.jobs.service.retry_policy import Patience, Waiting

_Answer = TypeVar("_Answer")


class Outage:
    """From the first question without an answer to the next answer."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since = 0.0
        self.tries = 0

    @property
    def since(self) -> float | None:
        """Seconds since 1970; None while all is well."""
        return self._since if self.tries else None

    def goes_on(self, what: str, error: Exception) -> Waiting:
        self._since = self._since if self.tries else time.time()
        self.tries += 1
        return Waiting(what, reason(error), self._since, self._patience.gap(self.tries), trouble(error))

    def is_over(self) -> float | None:
        """Seconds that it lasted, if there was one."""
        lasted = time.time() - self._since if self.tries else None
        self.tries = 0
        return lasted


def ask(
    clients: Clients,
    what: str,
    question: Callable[[], _Answer],
    unsure: Callable[[], _Answer | None] | None = None,
    *,
    is_transfer: bool = False,
) -> _Answer:
    """The answer to ``question``, which is asked again while what is in the way may pass.

    Args:
        what: said in front of the reason, such as ``job x cannot be described``.
        unsure: asked before ``question`` is put again: the service may have acted and only its answer was lost. What
            it returns, unless None, is the answer.
        is_transfer: of more bytes than patience could bound, which counts from the first failure then.

    Raises:
        ServiceProblem: refused, or no answer within ``clients.patience``.
        EnvironmentProblem: the credentials have expired.
        Interrupted: ``clients.interrupted`` was set before there was an answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    began, outage = time.time(), Outage(clients.patience)
    asked = question
    while True:
        try:
            return asked()
        except (ClientError, BotoCoreError) as error:
            waiting = outage.goes_on(what, error)
            _require_hope(clients, waiting, outage.tries, waiting.since if is_transfer else began, error)
            clients.tell(waiting)
            if clients.interrupted.wait(waiting.again_in):
                raise Interrupted(f"{waiting.what}: interrupted after {waiting.reason}") from error
        clients.renew(waiting.trouble)
        if unsure is not None:
            asked = _after(unsure, question)


def _after(unsure: Callable[[], _Answer | None], question: Callable[[], _Answer]) -> Callable[[], _Answer]:
    def asked() -> _Answer:
        done = unsure()
        return question() if done is None else done

    return asked


def _require_hope(clients: Clients, waiting: Waiting, tries: int, began: float, error: Exception) -> None:
    if waiting.trouble is Trouble.FINAL:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason}") from error
    if waiting.trouble is Trouble.CREDENTIALS and tries >= clients.patience.credentials:
        raise EnvironmentProblem(
            f"{waiting.what}: {waiting.reason}; renew your AWS credentials, such as with `aws sso login`"
        ) from error
    lasted = time.time() - began
    if lasted + waiting.again_in > clients.patience.total:
        raise ServiceProblem(f"{waiting.what}: {waiting.reason} ({tries} tries in {lasted:.0f} s)") from error


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn botocore's errors into ours, with ``what`` in front."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ServiceProblem(f"{what}: {reason(error)}") from error
