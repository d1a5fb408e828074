"""How a job ends, and what it says about it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

REASON_LIMIT = 1024  # characters, the service's limit of FailureReason
_SIGNALLED = 128  # a process that a signal ended has this and the signal's number as its code


class JobFailed(Exception):
    """The job cannot go on; the message is its FailureReason."""


class JobStopped(Exception):
    """A stop was asked for before the training began."""


@dataclass(frozen=True)
class Ending:
    status: Literal["Completed", "Failed", "Stopped"]
    secondary: str
    message: str
    failure: str | None = None


COMPLETED = Ending("Completed", "Completed", "Training job completed")
STOPPED = Ending("Stopped", "Stopped", "Training job stopped")
INTERRUPTED = Ending("Stopped", "Interrupted", "Training job interrupted")  # unless it comes back
NO_CAPACITY = Ending("Stopped", "MaxWaitTimeExceeded", "Training job wait time exceeded MaxWaitTimeInSeconds provided")
OUT_OF_TIME = Ending("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided")


def failed(reason: str) -> Ending:
    return Ending("Failed", "Failed", "Training job failed", reason[:REASON_LIMIT])


class EndedHost(Protocol):
    """What is known of a host that ended with a code other than 0."""

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def failed_at(self) -> float:
        """Seconds since 1970: when its first worker failed, else when the host ended."""

    def failure_text(self) -> str:
        """Content of its failure file; empty where it wrote none."""


def failure_reason(hosts: Sequence[EndedHost]) -> str:
    """The reason of the host that failed first: the others usually fail because it did.

    A host that was killed could say nothing, so the others may have noticed and said so before its end is seen here.
    """
    first = min(hosts, key=lambda host: (not _was_killed(host), host.failed_at, host.name))
    text = first.failure_text().strip() or f"{first.name} {_describe(first.code)}"
    tail = f", exit code: {first.code}"
    head = "AlgorithmError: "
    return f"{head}{text[: REASON_LIMIT - len(head) - len(tail)]}{tail}"


def _was_killed(host: EndedHost) -> bool:
    return host.code > _SIGNALLED and not host.failure_text().strip()


def _describe(code: int) -> str:
    if code > _SIGNALLED:
        try:
            return f"was killed by {signal.Signals(code - _SIGNALLED).name}"
        except ValueError:
            pass
    return f"ended with exit code {code} and left no failure report"
