"""A launch costs nothing if its service refused it. One that an account does not know may run in another account."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.open_costs import refresh
from smdp_launch.jobs.preflight.weekly_budget import weekly_budget
from smdp_launch.jobs.records.folders import remember_folder
from smdp_launch.jobs.records.history import ends, record_end, record_launch
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.jobs.service.clients import Clients, ignore_waiting
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.jobs.spending.ledger import Ledger, Prices
from smdp_launch.jobs.status.list_jobs import jobs_of_folder
from smdp_launch.jobs.submit import create
from tests.support.services.busy_account import BusyAccount
from tests.support.services.scripted_service import refusal

P4D = "ml.p4d.24xlarge"
NOW = datetime.now(timezone.utc)
REFUSED = refusal("ResourceLimitExceeded", "The account-level service limit is 0 Instances")
THROTTLED = refusal("ThrottlingException", "Rate exceeded")
EXPIRED = refusal("ExpiredTokenException", "The security token included in the request is expired")
LOST = EndpointConnectionError(endpoint_url="https://api.sagemaker")
IN_USE = refusal("ResourceInUse", "Training job names must be unique")
INVALID = ParamValidationError(report="missing RoleArn")


def refused_again() -> ClientError:
    """After a try that botocore repeated by itself."""
    error = refusal("ResourceLimitExceeded")
    error.response["ResponseMetadata"]["RetryAttempts"] = 1
    return error


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    made = tmp_path / "folder"
    made.mkdir()
    monkeypatch.chdir(made)
    remember_folder(made)
    return made


def launched(name: str) -> None:
    known: dict[str, Any] = {"hosts": 2, "instance_type": P4D, "prices": {P4D: 18.0}, "price": 18.0, "most_usd": 50.0}
    record_launch(name, "us-east-1", "job.yaml", "0" * 64, NOW, **known)


class Service:
    """SageMaker that refuses to create the job with these errors, one after the other. The name belongs to another
    job, if it is in use."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self._errors = list(errors)

    def create_training_job(self, **_: Any) -> None:
        raise self._errors.pop(0)

    def describe_training_job(self, **_: Any) -> dict[str, str]:
        return {"TrainingJobArn": "arn"}

    def get_paginator(self, _: str) -> Any:
        return SimpleNamespace(paginate=lambda **_: [{"Tags": []}])


def launch(name: str, *errors: Exception) -> None:
    launched(name)
    service, policy = Service(errors), RetryPolicy(first_gap=0.0, total=60, credential_tries=5)
    clients = Clients(service, None, service, 0.0, lambda _: None, lambda _: None, policy)
    with pytest.raises(SmdpError):
        create(clients, {"TrainingJobName": name, "Tags": []})


@pytest.mark.parametrize(
    ("errors", "costs_nothing"),
    [
        ([REFUSED], True),
        ([INVALID], True),
        ([EXPIRED, REFUSED], True),
        ([LOST, REFUSED], False),
        ([THROTTLED, EXPIRED, REFUSED], False),
        ([refused_again()], False),
        ([IN_USE], False),
    ],
    ids=["refused", "not sent", "credentials", "an answer was lost", "throttled", "botocore's retry", "name in use"],
)
def test_launch_costs_nothing_if_every_try_was_refused(errors: list[Exception], costs_nothing: bool) -> None:
    launch("tried", *errors)
    assert ("tried" in ends()) == costs_nothing
    (row,) = Ledger(Prices(), NOW).rows
    assert (row.usd, row.most_usd) == ((0.0, None) if costs_nothing else (None, 50.0))


def test_refused_launch_is_listed_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    launch("refused", REFUSED)
    account = BusyAccount({})
    account.serve(monkeypatch)
    (listed,) = jobs_of_folder(10)
    assert (listed.status, listed.summary, listed.usd) == (None, "never accepted by the service", 0.0)
    assert refresh() == ({}, [])
    assert account.calls == []


def test_job_that_is_launched_again_within_the_second_has_not_ended() -> None:
    """The resumption of a job has the same name each time."""
    launch("resumed", REFUSED)
    launched("resumed")
    assert ends() == {}
    record_end("resumed", outcome({"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 600}), NOW)
    assert ends()["resumed"].ended == "Completed"
    launched("resumed")
    assert ends()["resumed"].ended == "Completed"


def budget_text() -> str:
    budget = SimpleNamespace(max_usd_per_week=1000.0)
    plan = SimpleNamespace(
        job="new", sweep_bounds=None, billing=SimpleNamespace(usd=10.0), spec=SimpleNamespace(budget=budget)
    )
    account = cast("Any", SimpleNamespace(plan=plan, clients=SimpleNamespace(on_waiting=ignore_waiting)))
    (found,) = weekly_budget(account)
    return str(found)


def test_job_of_another_account_counts_at_its_most(monkeypatch: pytest.MonkeyPatch) -> None:
    launched("in another account")
    launch("refused", REFUSED)
    BusyAccount({}).serve(monkeypatch)
    assert budget_text().startswith("50.00 USD of 1,000.00 USD in ")


def test_list_with_another_account_does_not_change_what_a_job_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    record_launch(
        "old", "us-east-1", "job.yaml", "0" * 64, datetime(2026, 1, 5, tzinfo=timezone.utc), hosts=2, price=18.0
    )
    BusyAccount({}).serve(monkeypatch)
    assert jobs_of_folder(10)[0].summary == "never accepted by the service"
    current, _ = refresh()
    (row,) = Ledger(Prices(), NOW, current=current).rows
    assert (row.status, row.usd) == ("unknown to this account", None)
    BusyAccount({"old": {"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 600}}).serve(monkeypatch)
    refresh()
    (row,) = Ledger(Prices(), NOW).rows
    assert row.usd == pytest.approx(6)
