"""The timeout of a follower: a job that has ended is reported as such, even if its log is not read to the end."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from smdp_launch import WaitTimedOut
from smdp_launch.cli.render.job.events import EventView
from smdp_launch.cli.shared import follow_session
from smdp_launch.cli.shared.follow_session import Answer, FollowSession, RunOptions
from smdp_launch.errors import ExitCode
from smdp_launch.jobs import job as job_module
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import LogLine
from tests.support.services.scripted_service import ScriptedService


def service_with_log(ended: float | None) -> ScriptedService:
    """A service that sends one line in each answer, and needs a second for it."""
    service = ScriptedService()
    service.now, service.ended, service.page = 1000.0, ended, 1
    service.lines = [(800.0 + number, f"line {number}") for number in range(100)]

    def before(_: str) -> None:
        service.now += 1.0

    service.before = before
    return service


def follow(service: ScriptedService, timeout: float) -> list[FollowEvent]:
    follower = Follower(service.clients(), "j", timeout, clock=lambda: service.now)
    return list(follower.events(lambda _: None))


def test_timeout_within_the_log_of_an_ended_job_reports_the_end() -> None:
    seen = follow(service_with_log(ended=999.0), 20.0)
    lines = [one.text for one in seen if isinstance(one, LogLine)]
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert 0 < len(lines) < 100
    ended = seen[-1]
    assert isinstance(ended, Ended)
    assert (ended.outcome.exit_code, ended.has_all_lines) == (ExitCode.JOB_FAILED, False)


def test_timeout_of_zero_reports_the_end_of_a_job() -> None:
    assert isinstance(follow(service_with_log(ended=999.0), 0.0)[-1], Ended)


def test_log_that_is_read_in_time_is_complete() -> None:
    ended = follow(service_with_log(ended=999.0), 1000.0)[-1]
    assert isinstance(ended, Ended)
    assert ended.has_all_lines


def test_timeout_of_a_running_job_is_an_error() -> None:
    with pytest.raises(WaitTimedOut, match="j has not ended within 20 s; it continues"):
        follow(service_with_log(ended=None), 20.0)


def test_view_says_that_the_log_may_be_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    session = FollowSession(service_with_log(ended=999.0).clients(), "j", None, Answer.DETACH, 0.0)
    result = session.run()
    assert result is not None
    assert result.outcome.exit_code is ExitCode.JOB_FAILED
    note = "the log may be incomplete, because the timeout came first: `smdp-launch logs j` prints it\n"
    assert capsys.readouterr().out.endswith(note)


@pytest.mark.parametrize("timeout", [0.0, 1000.0])
def test_input_rate_is_that_of_a_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float) -> None:
    """The rate of a log's start replaces no rate in the history."""
    monkeypatch.chdir(tmp_path)
    recorded: list[str] = []
    for module in (follow_session, job_module):
        monkeypatch.setattr(module, "record_input", lambda job, _: recorded.append(job))
    service = service_with_log(ended=999.0)
    FollowSession(service.clients(), "j", None, Answer.DETACH, timeout, quiet=True).run()
    list(Job("j", "us-east-1", None, lambda: nullcontext(service.clients())).follow(timeout))
    assert recorded == ([] if timeout == 0 else ["j", "j"])


@pytest.mark.parametrize("timeout", [0.0, 1000.0])
def test_json_and_report_say_whether_the_log_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], timeout: float
) -> None:
    monkeypatch.chdir(tmp_path)
    clients, options = service_with_log(ended=999.0).clients(), RunOptions("us-east-1", tmp_path / "run.html")
    events = EventView("j", "us-east-1", quiet=True)
    FollowSession(clients, "j", None, Answer.DETACH, timeout, events=events, options=options).run()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["seen"], last["has_all_lines"]) == ("ended", timeout > 0)
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert ("not read to its end" in page) is (timeout == 0)
