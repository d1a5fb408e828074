"""Follows a deployment until it answers requests, or until its batch transform has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from smdp_launch.errors import EndpointFailed, ServiceProblem, SmdpError, WaitTimedOut
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.plain_text import without_controls
from smdp_launch.serving.resources import ENDPOINT, TRANSFORM, Kind, describe, is_missing

#: Seconds that SageMaker may take: an endpoint whose container fails again and again stays Creating for half an hour.
LONGEST_START = 5400.0
#: Seconds until a deleted endpoint is gone.
LONGEST_DELETION = 1800.0
_ENDPOINT_LOGS = "/aws/sagemaker/Endpoints/"
_TRANSFORM_LOGS = "/aws/sagemaker/TransformJobs"
_TAIL = 30  # lines of a container's log
_STREAMS = 4

#: Waits for the given seconds between two polls; True ends the wait.
Wait = Callable[[float], bool]


def wait_until_ready(
    clients: Clients,
    name: str,
    kind: Kind,
    on_status: Callable[[str], None],
    wait: Wait,
    timeout: float = LONGEST_START,
) -> Mapping[str, Any] | None:
    """Poll until the endpoint is in service, or the transform job has completed. Return its description.

    Args:
        on_status: called with each new status.

    Returns:
        None if ``wait`` ended the wait.

    Raises:
        EndpointFailed: with the service's reason and the end of the container's log.
        WaitTimedOut: not ready within ``timeout`` seconds.
        ServiceProblem: the endpoint is gone, or the service refused or did not answer.
    """
    deadline, before = time.monotonic() + timeout, ""
    while True:
        found = describe(clients, kind, name)
        if found is None:
            raise ServiceProblem(f"{kind.title} {name} does not exist any more")
        status = str(found[kind.status])
        if status != before:
            on_status(status)
            before = status
        if status in ("InService", "Completed"):
            return found
        if status in ("Failed", "OutOfService", "UpdateRollbackFailed", "Stopped"):
            reason = without_controls(str(found.get("FailureReason", ""))) or f"its status is {status}"
            raise EndpointFailed(f"{kind.title} {name} failed: {reason}", log_tail(clients, kind, name))
        if time.monotonic() > deadline:
            raise WaitTimedOut(f"{kind.title} {name} is still {status} after {timeout:.0f} s, and continues")
        if wait(clients.poll):
            return None


def wait_until_gone(clients: Clients, name: str, wait: Wait, timeout: float = LONGEST_DELETION) -> bool:
    """Poll until the endpoint does not exist. Return False if ``wait`` ended the wait.

    Raises:
        WaitTimedOut: it still exists after ``timeout`` seconds.
        EndpointFailed: the service could not delete it.
    """
    deadline = time.monotonic() + timeout
    while (found := describe(clients, ENDPOINT, name)) is not None:
        if found["EndpointStatus"] == "Failed":
            reason = without_controls(str(found.get("FailureReason", "no reason given")))
            raise EndpointFailed(f"endpoint {name} could not be deleted: {reason}")
        if time.monotonic() > deadline:
            raise WaitTimedOut(f"endpoint {name} still exists {timeout:.0f} s after its deletion")
        if wait(clients.poll):
            return False
    return True


def log_tail(clients: Clients, kind: Kind, name: str, stream: str | None = None) -> list[str]:
    """The last lines of the containers' logs; empty if there are none, or if they cannot be read.

    Args:
        stream: only this log stream, of one container. Without it, those of earlier endpoints with this name count too.
    """
    group = _TRANSFORM_LOGS if kind is TRANSFORM else f"{_ENDPOINT_LOGS}{name}"
    wanted = stream or (f"{name}/" if kind is TRANSFORM else None)
    prefix = {"logStreamNamePrefix": wanted} if wanted is not None else {}

    def call() -> list[str]:
        try:
            listed = clients.logs.describe_log_streams(logGroupName=group, limit=_STREAMS, **prefix)["logStreams"]
        except Exception as error:
            if is_missing(error):
                return []
            raise
        lines: list[tuple[int, str]] = []
        for one in listed:
            events = clients.logs.get_log_events(
                logGroupName=group, logStreamName=one["logStreamName"], startFromHead=False, limit=_TAIL
            )["events"]
            lines += [(int(event["timestamp"]), without_controls(str(event["message"]))) for event in events]
        return [text for _, text in sorted(lines, key=lambda line: line[0])[-_TAIL:]]

    try:
        return call_with_retries(clients, f"the log of {name} cannot be read", call)
    except SmdpError:
        return []
