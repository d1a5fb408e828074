"""Deploys an endpoint with a fault, calls it until it has recovered or its time is over, and deletes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.catalog.hosting.faults import EndpointFault
from smdp_launch.errors import EndpointFailed, Interrupted, SmdpError
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.plain_text import without_controls
from smdp_launch.rehearsals.endpoint.caller import Call, Caller, Request, answered_since, answers_nothing
from smdp_launch.serving.deploy import create_all, forget, record, roll_back
from smdp_launch.serving.follow import log_tail, wait_until_gone, wait_until_ready
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import CONFIG, ENDPOINT, MODEL, describe, is_missing

#: How the local cloud marks its own lines in the log of a host.
_MARK = "[local cloud] "
_INJECTED = "fault injected"
_RESTARTED = "it is started again"
_ANSWERS = 3  # in a row, until the endpoint counts as recovered


@dataclass(frozen=True)
class Line:
    """A line of the local cloud in the log of a host. `at`: seconds since 1970."""

    at: float
    host: str
    text: str


@dataclass
class Observed:
    """What a rehearsal has seen. All times in seconds since 1970.

    Args:
        statuses: each status of the endpoint from the time at which it was seen first; ``Deleted`` at the end.
        in_service: when all hosts were in service; None if they never were.
        hosts: each number of hosts in service, as the service described it.
        recovered: when the first of the answers was sent that show the recovery; None without one.
        failure: why the endpoint did not start.
        log: the end of the containers' logs, if it did not start or did not recover.
        left: what was not deleted, with the reason.
    """

    statuses: list[tuple[float, str]] = field(default_factory=list)
    in_service: float | None = None
    hosts: list[tuple[float, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    recovered: float | None = None
    failure: str = ""
    log: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def injected(self) -> float | None:
        """When the fault was injected; None if it was not."""
        return next((one.at for one in self.lines if one.text.startswith(_INJECTED)), None)

    @property
    def restarted(self) -> float | None:
        return next((one.at for one in self.lines if _RESTARTED in one.text), None)

    @property
    def answers(self) -> list[Call]:
        return [one for one in self.calls if not one.error]


def rehearse_endpoint(
    clients: Clients,
    plan: ServingPlan,
    state: str,
    fault: EndpointFault,
    request: Request,
    within: float,
    on_status: Callable[[str], None],
) -> Observed:
    """Deploy, call and delete the endpoint. In every case nothing of it is left behind.

    Args:
        state: the local cloud's, as in the history.
        fault: that of the plan.
        within: seconds after the fault, or after its end, in which the endpoint must answer again.

    Raises:
        Interrupted: the user interrupts.
        ServiceProblem, EnvironmentProblem, Refused: the local cloud refused, or did not answer.
    """
    found = Observed()
    record(plan, state)
    created = create_all(clients, plan, on_rolled_back=lambda undone: forget(plan, undone))
    caller = Caller(clients.quick("sagemaker-runtime"), plan.name, request)

    def note(status: str) -> None:
        found.statuses.append((time.time(), status))
        on_status(status)

    try:
        caller.start()
        _observe(clients, plan.name, fault, found, caller, within, note)
    finally:
        caller.stop()
        found.calls = list(caller.calls)
        note("Deleting")
        undone = roll_back(clients, created)
        found.left = dict(undone.left)
        wait_until_gone(clients, plan.name, clients.interrupted.wait)
        found.left |= _existing(clients, plan.name)
        if not found.left:
            note("Deleted")
            forget(plan, undone)
    return found


def _observe(
    clients: Clients,
    name: str,
    fault: EndpointFault,
    found: Observed,
    caller: Caller,
    within: float,
    note: Callable[[str], None],
) -> None:
    try:
        ready = wait_until_ready(clients, name, ENDPOINT, note, clients.interrupted.wait)
    except EndpointFailed as error:
        found.failure, found.log, found.lines = str(error), error.log, _lines(clients, name)
        return
    if ready is None:
        raise Interrupted("interrupted")
    found.in_service = time.time()
    lasts = fault.seconds if fault.kind == "overload" else 0.0
    # The deadline is for a local cloud that does not inject the fault, and for an endpoint that does not recover.
    deadline = time.monotonic() + fault.after + lasts + within
    while not _has_recovered(clients, name, fault, found, caller):
        if time.monotonic() > deadline or answers_nothing(caller.calls, _ANSWERS):
            found.log = log_tail(clients, ENDPOINT, name)
            return
        if clients.interrupted.wait(clients.poll):
            raise Interrupted("interrupted")


def _has_recovered(clients: Clients, name: str, fault: EndpointFault, found: Observed, caller: Caller) -> bool:
    found.lines = _lines(clients, name)
    described = describe(clients, ENDPOINT, name) or {}
    variants: list[dict[str, Any]] = described.get("ProductionVariants", [])
    variant = variants[0] if variants else {}
    current, desired = variant.get("CurrentInstanceCount"), variant.get("DesiredInstanceCount")
    if current is not None and (not found.hosts or found.hosts[-1][1] != current):
        found.hosts.append((time.time(), current))
    since = {
        "slow-start": found.in_service,
        "crash": found.restarted,
        "overload": found.injected + fault.seconds if found.injected is not None else None,
    }[fault.kind]
    calls = caller.calls
    if since is None or current != desired or not answered_since(calls, since, _ANSWERS):
        return False
    found.recovered = calls[-_ANSWERS].sent
    return True


def _lines(clients: Clients, name: str) -> list[Line]:
    """What the local cloud has written to the logs of the hosts, in order of time."""
    group = f"/aws/sagemaker/Endpoints/{name}"

    def call() -> list[Line]:
        try:
            streams = clients.logs.describe_log_streams(logGroupName=group)["logStreams"]
        except Exception as error:
            if is_missing(error):
                return []
            raise
        lines = []
        for one in streams:
            events = clients.logs.get_log_events(
                logGroupName=group, logStreamName=one["logStreamName"], startFromHead=True
            )["events"]
            host = str(one["logStreamName"]).rpartition("/")[2]
            lines += [
                Line(event["timestamp"] / 1000, host, without_controls(event["message"].removeprefix(_MARK)))
                for event in events
                if event["message"].startswith(_MARK)
            ]
        return sorted(lines, key=lambda line: line.at)

    return call_with_retries(clients, f"the log of {name} cannot be read", call)


def _existing(clients: Clients, name: str) -> dict[str, str]:
    """The resources of the endpoint that the service still describes."""
    left = {}
    for kind in (ENDPOINT, CONFIG, MODEL):
        try:
            if describe(clients, kind, name) is not None:
                left[f"{kind.title} {name}"] = "it still exists"
        except SmdpError as error:
            left[f"{kind.title} {name}"] = str(error)
    return left
