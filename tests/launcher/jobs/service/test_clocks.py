"""A wrong clock of this machine, or its sleep, changes neither what is read nor how long a service may be away."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import EndpointConnectionError

from smdp_launch import ServiceProblem
from smdp_launch.cli.shared.follow_session import Answer, FollowSession
from smdp_launch.jobs import job as job_module
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent, ServiceRecovered
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.logs.read import LogFilter, read_lines
from smdp_launch.jobs.records.history import record_launch
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.request.environment import RETRIES_VARIABLE
from tests.support.services.scripted_service import BEGAN, ScriptedService, refusal

TAIL = [(970.0, "Traceback (most recent call last):"), (971.0, "ValueError: the cause")]
EVERY = ["step 100", *(text for _, text in TAIL)]


def set_clock(monkeypatch: pytest.MonkeyPatch, service: ScriptedService, ahead: float) -> None:
    """Set the clock of this machine ``ahead`` of the service's."""
    monkeypatch.setattr(time, "time", lambda: BEGAN.timestamp() + service.now + ahead)


@pytest.mark.parametrize("ahead", [0.0, 90.0, -90.0])
def test_last_lines_of_a_job_are_awaited_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    service = ScriptedService()
    set_clock(monkeypatch, service, ahead)
    service.now, service.ended, service.lines = 1000.0, 999.0, [(800.0, "step 100")]
    follower = Follower(service.clients(), "j", clock=lambda: service.now)
    seen: list[FollowEvent] = []
    for poll in range(6):
        if poll == 2:
            service.lines += TAIL  # CloudWatch has them some seconds after the end
        seen += follower.poll()
        service.now += 2
        if isinstance(seen[-1], Ended):
            break
    assert [one.text for one in seen if isinstance(one, LogLine)] == EVERY
    assert isinstance(seen[-1], Ended)


def test_job_that_ended_long_ago_needs_one_poll() -> None:
    service = ScriptedService()
    service.now, service.ended, service.lines = 1100.0, 999.0, [(800.0, "step 100"), *TAIL]
    assert isinstance(list(Follower(service.clients(), "j", clock=lambda: 0.0).poll())[-1], Ended)


def test_last_lines_are_not_awaited_for_longer_than_a_minute() -> None:
    service = ScriptedService()
    service.now = service.ended = 1000.0
    now = [0.0]
    follower = Follower(service.clients(), "j", clock=lambda: now[0])
    for number in range(3):
        service.lines.append((1000.0, f"late {number}"))
        seen = list(follower.poll())
        assert isinstance(seen[-1], Ended) == (number == 2)
        now[0] += 31.0


@pytest.mark.parametrize("ahead", [0.0, -90.0, 90.0])
def test_logs_reach_to_the_present_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    service = ScriptedService()
    set_clock(monkeypatch, service, ahead)
    service.now, service.lines = 1000.0, [(800.0, "step 100"), *TAIL, (1002.0, "later than the call")]
    assert [one.text for one in read_lines(service.clients(), "j", LogFilter())] == EVERY


def unreachable(_: str) -> None:
    raise EndpointConnectionError(endpoint_url="https://api.sagemaker")


@pytest.mark.parametrize("runs_on", [False, True], ids=["clock paused in sleep", "clock runs on"])
def test_sleep_is_no_part_of_an_outage(monkeypatch: pytest.MonkeyPatch, runs_on: bool) -> None:
    service = ScriptedService()
    service.before = unreachable
    wall, clock = [1e9], [0.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    follower = Follower(service.clients(), "j", clock=lambda: clock[0])
    for slept in (62 * 3600.0, 62 * 3600.0, 0.0):
        (one,) = follower.poll()
        assert isinstance(one, Waiting)
        wall[0] += 1 + slept
        clock[0] += 1 + (slept if runs_on else 0)
    service.before = lambda _: None
    recovered = [one for one in follower.poll() if isinstance(one, ServiceRecovered)]
    assert [one.lasted for one in recovered] == [wall[0] - 1e9]


def test_outage_of_a_day_is_an_error() -> None:
    service = ScriptedService()
    service.before = unreachable
    clock = [0.0]
    follower = Follower(service.clients(), "j", clock=lambda: clock[0])
    with pytest.raises(ServiceProblem, match="cannot be followed"):
        for _ in range(1000):
            list(follower.poll())
            clock[0] += 300
    assert clock[0] == 86400 + 300


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestTimeTooSkewed", "The difference between the request time and the current time is too large."),
        ("InvalidSignatureException", "Signature expired: 20261127T180000Z is now earlier than 20261130T075500Z"),
        ("InvalidSignatureException", "Signature not yet current: 20261130T180000Z is still later than 20261130T1705Z"),
        ("SignatureDoesNotMatch", "Signature expired: 20261127T180000Z is now earlier than 20261130T075500Z"),
    ],
)
def test_follower_waits_until_the_clock_is_right(code: str, message: str) -> None:
    service = ScriptedService()

    def before(_: str) -> None:
        raise refusal(code, message, 403)

    service.before, service.lines = before, [(1.0, "trained")]
    follower = Follower(service.clients(), "j")
    (one,) = follower.poll()
    assert isinstance(one, Waiting)
    assert one.error_kind is ErrorKind.TEMPORARY
    assert one.reason == f"{code}: {message}; the clock of this machine is wrong: set it"
    service.before = lambda _: None
    assert [one.text for one in follower.poll() if isinstance(one, LogLine)] == ["trained"]


def test_wrong_signature_is_an_error() -> None:
    service = ScriptedService()

    def before(_: str) -> None:
        raise refusal("SignatureDoesNotMatch", "The request signature we calculated does not match", 403)

    service.before = before
    with pytest.raises(ServiceProblem, match=r"does not match$"):
        list(Follower(service.clients(), "j").poll())


def test_sleep_and_outage_are_no_stall(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a poll that has read the whole log can find one. The hours are those of the service's clock; this machine's
    clock is much later from the first poll on."""
    monkeypatch.chdir(job_folder)
    receiver = {"on": ["trouble"], "command": "sh -c 'cat >> messages; echo >> messages'"}
    record_launch("j", "us-east-1", "job.yaml", "0" * 64, BEGAN, notify=json.dumps(receiver))
    service, polls = ScriptedService(), [0]

    def steps(*times: int) -> list[tuple[float, str]]:
        return [(at, '{"smdp_event": 1, "event": "step", "step": 1}') for at in times]

    def before(call: str) -> None:
        if call != "DescribeTrainingJob":
            return
        polls[0] += 1
        if polls[0] == 1:
            service.now, service.lines = 60.0, steps(10, 20, 30, 40, 50)
        elif polls[0] < 6:
            service.now += 7200
            unreachable(call)
        elif polls[0] == 6:
            service.lines += steps(*range(28_000, 28_861, 10))
        elif polls[0] == 7:
            service.now += 1200
        else:
            service.now = service.ended = 40_000.0

    service.before = before
    assert FollowSession(service.clients(), "j", None, Answer.DETACH).run() is not None
    messages = [json.loads(line) for line in Path("messages").read_text().splitlines()]
    assert [(one["kind"], one["summary"]) for one in messages] == [("stall", "it has reported no step for 20 min")]


#: Seconds from BEGAN to an end before, and to one after, the time of this machine's clock.
EARLY, LATE = -1e9, 1e9


@pytest.mark.parametrize("end", [EARLY, LATE], ids=["clock ahead", "clock behind"])
@pytest.mark.parametrize("runs", [True, False])
def test_job_is_retried_only_if_it_ran_at_the_first_call(
    monkeypatch: pytest.MonkeyPatch, end: float, *, runs: bool
) -> None:
    service = ScriptedService()
    service.fields = {"Environment": {RETRIES_VARIABLE: "1:hardware"}, "FailureReason": "InternalServerError: no host"}
    calls: list[str] = []

    def before(call: str) -> None:
        calls.append(call)
        service.ended = end if calls.count("DescribeTrainingJob") > int(runs) else None

    service.before = before
    resumed: list[str] = []

    def resume(*_: object) -> None:
        resumed.append("j")
        service.fields = {}

    monkeypatch.setattr(job_module, "prepare", lambda *_: SimpleNamespace(job="j"))
    monkeypatch.setattr(job_module, "resume", resume)
    job = Job("j", "us-east-1", None, lambda: nullcontext(service.clients()))
    assert job.wait().status == "Failed"
    assert resumed == (["j"] if runs else [])
    calls.clear()
    session = FollowSession(service.clients(), "j", None, Answer.DETACH, quiet=True)
    assert session.run() is not None
    assert session.had_ended is not runs


@pytest.mark.parametrize(("end", "had_ended"), [(999.0, True), (1010.0, False)], ids=["before", "in the outage"])
def test_job_that_fails_in_an_outage_at_the_start_had_not_ended_before(
    monkeypatch: pytest.MonkeyPatch, end: float, *, had_ended: bool
) -> None:
    service, failed = ScriptedService(), []
    service.now = 1000.0
    set_clock(monkeypatch, service, 5000.0)

    def before(_: str) -> None:
        if service.now < 1060:
            service.now += 20
            failed.append(service.now)
            raise EndpointConnectionError(endpoint_url="https://api.sagemaker")
        service.ended = end

    service.before = before
    follower = Follower(service.clients(), "j", clock=lambda: service.now)
    assert isinstance([*follower.events(lambda _: None)][-1], Ended)
    assert len(failed) == 3
    assert follower.had_ended is had_ended
