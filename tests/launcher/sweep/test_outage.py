"""An outage of the service, or expired credentials, while a sweep is followed."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from smdp_launch.cli.render.terminal.retries import print_retry
from smdp_launch.cli.shared.sweeps import follow_sweep
from smdp_launch.errors import EnvironmentProblem, Interrupted, ServiceProblem, WaitTimedOut
from smdp_launch.jobs.service import retry
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.jobs.sweep import Sweep
from smdp_launch.jobs.sweeps import describe_sweep, following
from tests.support.services.scripted_service import refusal

EXPIRED = refusal("ExpiredTokenException", "The security token included in the request is expired")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://api.sagemaker")
RENEW = "renew your AWS credentials, for example with `aws sso login`"
ERRORS = pytest.mark.parametrize("error", [EXPIRED, UNREACHABLE], ids=["credentials", "network"])


class Service:
    """SageMaker with one sweep. After the first call, ``failing`` calls fail with ``error``; then the sweep has
    ended."""

    def __init__(self, error: Exception, failing: float) -> None:
        self.error, self.failing = error, failing
        self.calls = 0

    def clients(self) -> Clients:
        policy = RetryPolicy(first_gap=0.01, longest_gap=0.01, total=0.02, credential_tries=2)
        return Clients(self, None, self, 0.0, lambda _: None, lambda _: None, policy)

    def describe_hyper_parameter_tuning_job(self, **_: str) -> dict[str, Any]:
        self.calls += 1
        if 1 < self.calls <= 1 + self.failing:
            raise self.error
        return {
            "HyperParameterTuningJobStatus": "InProgress" if self.calls == 1 else "Completed",
            "CreationTime": datetime.now(timezone.utc),
            "HyperParameterTuningJobConfig": {
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": 1},
            },
        }

    def get_paginator(self, _: str) -> Service:
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [{"TrainingJobSummaries": []}]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@ERRORS
def test_interrupt_of_the_wait_for_a_sweep_says_that_it_continues(error: Exception) -> None:
    clients = Service(error, failing=12).clients()
    clients.on_waiting = lambda _: clients.interrupted.set()
    with following(clients, "s"):
        describe_sweep(clients, "s")
    message = r"interrupted after .*; s continues: smdp-launch trials s$"
    with pytest.raises(Interrupted, match=message), following(clients, "s"):
        describe_sweep(clients, "s")


@ERRORS
def test_outage_does_not_end_the_follower_of_a_sweep(error: Exception) -> None:
    ended = follow_sweep(Service(error, failing=12).clients(), "s")
    assert ended is not None
    assert ended.status == "Completed"


@ERRORS
def test_outage_does_not_end_the_wait_in_python(error: Exception) -> None:
    clients = Service(error, failing=12).clients()
    assert Sweep("s", "us-east-1", lambda: nullcontext(clients)).wait().status == "Completed"
    with pytest.raises((ServiceProblem, EnvironmentProblem)):
        retry.call_with_retries(clients, "other calls do not wait", lambda: _raise(error))


@ERRORS
def test_timeout_includes_an_outage(error: Exception) -> None:
    clients = Service(error, failing=float("inf")).clients()
    with pytest.raises(WaitTimedOut, match=r"s has not ended within 0\.3 s; it continues"):
        Sweep("s", "us-east-1", lambda: nullcontext(clients)).wait(timeout=0.3)


@ERRORS
def test_error_after_the_longest_outage_names_the_sweep(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(retry, "LONGEST_OUTAGE", 0.02)
    with pytest.raises((ServiceProblem, EnvironmentProblem)) as raised:
        follow_sweep(Service(error, failing=float("inf")).clients(), "s")
    help_ = RENEW if error is EXPIRED else r"\(\d+ tries in 0 s\)"
    assert re.search(rf"cannot be described: .*{help_}; s continues: smdp-launch trials s$", str(raised.value))
    assert isinstance(raised.value, EnvironmentProblem) == (error is EXPIRED)


def test_retry_with_expired_credentials_shows_how_to_renew_them(capsys: pytest.CaptureFixture[str]) -> None:
    clients = Service(EXPIRED, failing=2).clients()
    clients.on_waiting = print_retry
    follow_sweep(clients, "s")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(re.search(rf"is expired; retrying in 0\.0 s; {RENEW}$", one) for one in lines)


@ERRORS
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_first_call_of_the_wait_in_python_does_not_wait_for_recovery(error: Exception, timeout: float | None) -> None:
    service = Service(error, failing=12)
    service.calls = 1  # the next one fails
    clients = service.clients()
    with pytest.raises(EnvironmentProblem if error is EXPIRED else ServiceProblem):
        Sweep("s", "us-east-1", lambda: nullcontext(clients)).wait(timeout)
    assert service.calls < 12


def test_short_wait_with_credentials_that_are_expired_at_first_shows_how_to_renew_them() -> None:
    service = Service(EXPIRED, failing=float("inf"))
    service.calls = 1
    clients = service.clients()
    clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.01)
    with pytest.raises(EnvironmentProblem, match=RENEW):
        Sweep("s", "us-east-1", lambda: nullcontext(clients)).wait(timeout=0.1)


def test_unknown_sweep_is_not_said_to_continue() -> None:
    answer: Any = {"Error": {"Code": "ResourceNotFound", "Message": "Can't find s."}}
    refused = ClientError(answer, "DescribeHyperParameterTuningJob")
    with pytest.raises(ServiceProblem, match=r"Can't find s; check the name, the region and AWS_PROFILE$"):
        follow_sweep(Service(refused, failing=1).clients(), "s")


def _raise(error: Exception) -> None:
    raise error
