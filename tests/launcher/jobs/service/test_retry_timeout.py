"""The timeout of a command, or of a wait in Python, includes the retries of the job: no job is launched after it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from smdp_launch import WaitTimedOut
from smdp_launch.catalog.prices import read_prices
from smdp_launch.cli.commands import follow as follow_command
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.shared import retries
from smdp_launch.cli.shared.follow_session import Answer, RunOptions
from smdp_launch.cli.shared.retries import TimeLimit, follow_retries
from smdp_launch.errors import ExitCode
from smdp_launch.jobs import job as job_module
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.jobs.resume import Resumption
from smdp_launch.jobs.status.description import description
from smdp_launch.request.environment import RETRIES_VARIABLE
from tests.support.services.scripted_service import ScriptedService

FAILURE = "InternalServerError: no host"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedService:
    """The service of a job that has failed and is retried. The next job runs for ever, and writes lines."""
    monkeypatch.chdir(tmp_path)
    made = ScriptedService()
    made.now, made.ended, made.lines = 1000.0, 999.0, [(1.0, "a line")]
    made.fields = {"Environment": {RETRIES_VARIABLE: "2:hardware"}, "FailureReason": FAILURE}
    return made


@pytest.fixture
def resumed(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that were launched as a retry."""
    names: list[str] = []
    answer = service.describe_training_job()
    old = description(answer, datetime.now(timezone.utc))
    prepared = Resumption(old, outcome(answer), {"TrainingJobName": "k"}, None)

    def resume(*_: object) -> None:
        names.append("k")
        service.ended = None

    for module in (retries, job_module):
        monkeypatch.setattr(module, "prepare", lambda *_: prepared)
        monkeypatch.setattr(module, "resume", resume)
    return names


def job_of(service: ScriptedService) -> Job:
    return Job("j", "us-east-1", None, lambda: nullcontext(service.clients()), seen_running=True)


def test_wait_resumes_no_job_after_its_timeout(service: ScriptedService, resumed: list[str]) -> None:
    job = job_of(service)
    assert job.wait(timeout=0).status == "Failed"
    assert (job.name, resumed) == ("j", [])


def test_wait_names_its_own_timeout_after_a_retry(service: ScriptedService, resumed: list[str]) -> None:
    service.lines = []
    with pytest.raises(WaitTimedOut, match=r"^k has not ended within 0\.5 s; it continues$"):
        job_of(service).wait(timeout=0.5)
    assert resumed == ["k"]


def followed(service: ScriptedService, seconds: float | None, **options: Any) -> tuple[str, FollowResult | None]:
    ended = FollowResult(outcome(service.describe_training_job()))
    limit = TimeLimit(seconds)
    where = RunOptions("us-east-1")
    return follow_retries(service.clients(), "j", ended, where, limit=limit, answer=Answer.DETACH, **options)


def test_command_resumes_no_job_after_its_timeout(
    service: ScriptedService, resumed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job, result = followed(service, 0.0, as_json=False)
    assert result is not None
    assert (job, result.outcome.exit_code, resumed) == ("j", ExitCode.JOB_FAILED, [])
    assert capsys.readouterr().err.splitlines() == [
        f"note: j failed: {FAILURE}",
        "note: the timeout of 0 s is over, so no retry follows: "
        "`smdp-launch resume j --region us-east-1` resumes the job",
    ]


def test_command_follows_a_retry_for_the_rest_of_its_timeout(
    service: ScriptedService, resumed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WaitTimedOut, match=r"^k has not ended within 0\.5 s; it continues$"):
        followed(service, 0.5, as_json=False)
    assert resumed == ["k"]
    assert capsys.readouterr().err.endswith("next: smdp-launch follow k --region us-east-1\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_command_omits_the_log_of_a_retry(
    service: ScriptedService, resumed: list[str], capsys: pytest.CaptureFixture[str], *, quiet: bool
) -> None:
    with pytest.raises(WaitTimedOut):
        followed(service, 0.5, as_json=True, quiet=quiet)
    seen = [json.loads(line)["seen"] for line in capsys.readouterr().out.splitlines()]
    assert (seen.count("job"), seen.count("line")) == (1, 0 if quiet else 1)
    assert resumed == ["k"]


def test_follow_passes_its_options_to_the_retries(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(service)
    passed: dict[str, Any] = {}

    def before(call: str) -> None:
        service.ended = 999.0 if call == "GetLogEvents" else service.ended

    def retried(_: object, name: str, result: FollowResult, options: RunOptions, **more: Any) -> object:
        passed.update(more, prices=options.prices)
        return name, result

    service.before, service.ended = before, None
    monkeypatch.setattr("smdp_launch.api.attach", lambda *_, **__: job)
    monkeypatch.setattr(retries, "follow_retries", retried)
    Path("prices.yaml").write_text("{date: 2026-11-09, source: ours, prices: {us-east-1: {ml.p4d.24xlarge: 25}}}")
    arguments = ["--quiet", "--timeout", "60", "--prices", "prices.yaml"]
    ran = CliRunner().invoke(follow_command.command, arguments, standalone_mode=False)
    assert ran.return_value is ExitCode.JOB_FAILED, ran.exception
    limit = passed.pop("limit")
    assert 50 < limit.rest <= limit.total == 60
    assert passed == {
        "as_json": False,
        "answer": Answer.DETACH,
        "quiet": True,
        "prices": read_prices(Path("prices.yaml")),
    }
