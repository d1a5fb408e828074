"""Faults that are injected into the hosts of an endpoint."""

from __future__ import annotations

import time

import pytest

from smdp_launch.catalog.hosting.faults import VARIABLE, EndpointFault
from tests.support.services.serving import Serving
from tests.support.waiting import wait_for


def test_injected_crash_is_survived_by_the_other_host(serving: Serving) -> None:
    fault = EndpointFault("crash").to_text()
    serving.deploy("crash", hosts=2, **{VARIABLE: fault})
    serving.await_log("crash", "fault injected: the container is killed")
    serving.await_log("crash", "The container exited with code 137; it is started again in 0.5 s")
    assert serving.ask("crash")["is"] == [2, 4]
    serving.await_hosts("crash", 2)
    serving.delete("crash")


@pytest.mark.runs
def test_injected_overload_refuses_requests_for_its_time(serving: Serving) -> None:
    serving.deploy("overload", **{VARIABLE: EndpointFault("overload", seconds=2).to_text()})
    serving.await_log("overload", "fault injected: requests are refused for 2 s")
    response = serving.error("overload")
    assert response["Error"]["Code"] == "ServiceUnavailable"
    wait_for(lambda: _answers(serving, "overload"), "the end of the overload")
    serving.delete("overload")


def _answers(serving: Serving, name: str) -> bool:
    try:
        return bool(serving.ask(name)["is"] == [2, 4])
    except serving.runtime.exceptions.ServiceUnavailable:
        return False


@pytest.mark.runs
def test_injected_slow_start_counts_towards_the_startup_limit(serving: Serving) -> None:
    slow = {VARIABLE: EndpointFault("slow-start", seconds=600).to_text(), "SMDP_LOCAL_STARTUP_TIMEOUT_S": "2"}
    serving.start("slow-start", **slow)
    described = serving.wait("slow-start")
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"].endswith("The container did not answer its health check within 2 s.")


@pytest.mark.runs
def test_injected_slow_start_delays_service(serving: Serving) -> None:
    began = time.monotonic()
    serving.deploy("late", **{VARIABLE: EndpointFault("slow-start", seconds=3).to_text()})
    assert time.monotonic() - began >= 3
    serving.delete("late")


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"kind": "other"}', '{"kind": "crash", "after": -1}', '{"kind": "crash", "after": true}']
)
def test_text_that_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        EndpointFault.parse(text)


@pytest.mark.runs
def test_invalid_fault_fails_the_endpoint(serving: Serving) -> None:
    serving.start("invalid-fault", **{VARIABLE: '{"kind": "other"}'})
    described = serving.wait("invalid-fault")
    assert described["FailureReason"].startswith(f"ClientError: {VARIABLE}: ")
    serving.delete("invalid-fault")
