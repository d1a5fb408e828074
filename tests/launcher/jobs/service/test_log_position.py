"""A position in a log survives a pause that is longer than its token is valid."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from smdp_launch import ServiceProblem
from smdp_launch.jobs.follow import Follower
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.logs.read import LogFilter, read_lines
from smdp_launch.jobs.service.retry_policy import Waiting
from tests.support.services.scripted_service import ScriptedService, refusal


def texts(follower: Follower) -> list[str]:
    return [one.text for one in follower.poll() if isinstance(one, LogLine)]


@pytest.mark.parametrize("page", [1, 2, 10_000])
def test_refused_token_loses_and_repeats_no_line(page: int) -> None:
    service = ScriptedService()
    service.page, service.now = page, 100.0
    service.lines = [(1, "a"), (2, "same"), (2, "same")]
    follower = Follower(service.clients(), "j")
    assert texts(follower) == ["a", "same", "same"]
    for number in range(2):  # days later
        service.now += 90_000
        service.refuse_tokens = 1
        service.lines += [(2 + number, "same"), (2 + number, "same"), (3 + number, f"new {number}")]
        seen = [one for _ in range(2) for one in texts(follower)]
        assert seen == ["same", "same", f"new {number}"]
        assert service.refuse_tokens == 0
    assert texts(follower) == []


def test_outage_after_a_refused_token_loses_and_repeats_no_line() -> None:
    service = ScriptedService()
    service.lines, service.now = [(1, "a"), (2, "b")], 100.0
    follower = Follower(service.clients(), "j")
    assert texts(follower) == ["a", "b"]
    service.lines.append((2, "c"))
    service.refuse_tokens, calls = 1, ["GetLogEvents"]

    def before(call: str) -> None:
        if call == "GetLogEvents" and service.refuse_tokens == 0 and calls:
            calls.pop()
            raise EndpointConnectionError(endpoint_url="https://logs")

    service.before = before
    assert [type(one) for one in follower.poll()] == [Waiting]
    assert texts(follower) == ["c"]


def test_refusal_without_a_token_is_an_error() -> None:
    service = ScriptedService()

    def before(call: str) -> None:
        if call == "GetLogEvents":
            raise refusal("InvalidParameterException", "The specified nextToken is invalid.")

    service.before = before
    with pytest.raises(ServiceProblem) as raised:
        list(Follower(service.clients(), "j").poll())
    assert isinstance(raised.value.__cause__, ClientError)


def test_refused_token_loses_no_line_of_logs() -> None:
    service = ScriptedService()
    service.page, service.now, service.refuse_tokens = 2, 100.0, 1
    service.lines = [(1, "a"), (2, "b"), (2, "c"), (2, "d"), (3, "e")]
    assert [one.text for one in read_lines(service.clients(), "j", LogFilter())] == ["a", "b", "c", "d", "e"]
