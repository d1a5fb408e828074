"""How a job ends, and the reason that it reports."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

REASON_LIMIT = 1024  # characters, the service's limit of FailureReason
_SIGNALLED = 128  # the exit code of a process that a signal ended is this plus the signal's number


class JobFailed(Exception):
    """The job cannot continue; the message is its FailureReason."""


class JobStopped(Exception):
    """A stop was requested before the training began."""


@dataclass(frozen=True)
class Ending:
    status: Literal["Completed", "Failed", "Stopped"]
    secondary: str
    message: str
    failure: str | None = None


COMPLETED = Ending("Completed", "Completed", "Training job completed")
STOPPED = Ending("Stopped", "Stopped", "Training job stopped")
INTERRUPTED = Ending("Stopped", "Interrupted", "Training job interrupted")  # until there is capacity again
NO_CAPACITY = Ending("Stopped", "MaxWaitTimeExceeded", "Training job wait time exceeded MaxWaitTimeInSeconds provided")
OUT_OF_TIME = Ending("Stopped", "MaxRuntimeExceeded", "Training job runtime exceeded MaxRuntimeInSeconds provided")


def failed(reason: str, location: str = "") -> Ending:
    """Args:
    location: the end of the reason, which a long one does not cut.
    """
    text = f"{reason[: REASON_LIMIT - len(location)]}{location}"
    return Ending("Failed", "Failed", "Training job failed", text[:REASON_LIMIT])


class EndedHost(Protocol):
    """A host that exited with a code other than 0."""

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def failed_at(self) -> float:
        """Seconds since 1970: when its first worker failed, else when the host ended."""

    def failure_text(self) -> str:
        """The content of the failure file; empty where the host wrote none."""


def failure_reason(hosts: Sequence[EndedHost]) -> str:
    """The reason of the host that failed first: the others usually fail because of it.

    A killed host comes first whatever the times say: it reports nothing, so the reports of the others may be earlier.
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
    return f"exited with code {code} and wrote no failure report"
