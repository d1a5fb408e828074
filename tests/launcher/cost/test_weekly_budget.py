"""`budget.max_usd_per_week`: `launch` refuses a job that could exceed what the week may cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.preflight.weekly_budget import week_spent, weekly_budget
from smdp_launch.jobs.records.endpoints import Served, exact_time, record_deleted, record_served
from smdp_launch.jobs.records.folders import known_folders, remember_folder
from smdp_launch.jobs.records.history import ends, record_end, record_launch
from smdp_launch.jobs.records.outcome import NO_JOB, outcome
from smdp_launch.jobs.service.clients import ignore_waiting
from tests.conftest import JOB, Command, write_job
from tests.support.services.busy_account import BusyAccount
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data

P4D = "ml.p4d.24xlarge"
#: A Wednesday.
MOMENT = datetime(2026, 11, 18, 12, tzinfo=timezone.utc)
TABLE = f"{{date: 2026-11-01, source: ours, prices: {{us-east-1: {{{P4D}: 12.5}}}}}}"


def launched(name: str, moment: datetime, billed: int | None = None, **more: Any) -> None:
    known: dict[str, Any] = {"hosts": 2, "instance_type": P4D, "prices": {P4D: 18.0}, "price": 18.0, "most_usd": 50.0}
    record_launch(name, "us-east-1", "job.yaml", "0" * 64, moment, **(known | more))
    if billed is not None:
        answer = {"TrainingJobStatus": "Completed", "BillableTimeInSeconds": billed}
        record_end(name, outcome({**answer, "ResourceConfig": {"InstanceType": P4D}}), moment)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without the list of the user's own folders."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    return folder


def test_week_counts_ended_jobs_running_jobs_at_their_most_and_endpoints(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    launched("ended", MOMENT, billed=600)
    launched("running", MOMENT)
    launched("last week", MOMENT - timedelta(days=3), billed=3600)
    launched("own", MOMENT, most_usd=1000.0)
    began = exact_time(MOMENT - timedelta(days=7))
    record_served(Served("old", "realtime", "us-east-1", "hash", began, hosts=1, hourly_usd=1.0))
    record_served(Served("gone", "realtime", "us-east-1", "hash", began, hosts=1, hourly_usd=100.0))
    record_deleted("gone", MOMENT - timedelta(days=5))
    record_launch("tried", "local", "job.yaml", "0" * 64, MOMENT, hosts=2)
    spent = week_spent(MOMENT, "own")
    # 600 s of 2 hosts at 18 USD, the most of the running job, and 60 hours of the endpoint since Monday.
    assert (spent.usd, spent.unknown) == (pytest.approx(6 + 50 + 60), 0)


def test_other_folders_of_the_user_count_and_unknown_costs_are_reported(
    job_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, gone = tmp_path / "other", tmp_path / "gone"
    other.mkdir()
    monkeypatch.chdir(other)
    launched("elsewhere", MOMENT, billed=600)
    launched("unpriced", MOMENT, price=None, prices=None, most_usd=None)
    for folder in (other, other, gone):
        remember_folder(folder)
    assert known_folders() == [other]
    monkeypatch.chdir(job_folder)
    spent = week_spent(MOMENT)
    assert (spent.usd, spent.unknown) == (pytest.approx(6), 1)


def test_refused_jobs_cost_nothing_and_ended_jobs_of_other_folders_what_they_cost(
    job_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, now = tmp_path / "other", datetime.now(timezone.utc)
    other.mkdir()
    for folder in (other, job_folder):
        monkeypatch.chdir(folder)
        remember_folder(folder)
        for name in ("ended", "refused", "running"):
            launched(f"{name} in {folder.name}", now)
        record_end(f"refused in {folder.name}", NO_JOB, now)
    answer = {"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 600, "ResourceConfig": {"InstanceType": P4D}}
    known = {f"ended in {one.name}": answer for one in (other, job_folder)}
    known |= {f"running in {one.name}": {"TrainingJobStatus": "InProgress"} for one in (other, job_folder)}
    BusyAccount(known).serve(monkeypatch)
    budget = SimpleNamespace(max_usd_per_week=1000.0)
    plan = SimpleNamespace(
        job="new", sweep_bounds=None, billing=SimpleNamespace(usd=10.0), spec=SimpleNamespace(budget=budget)
    )
    account = cast("Any", SimpleNamespace(plan=plan, clients=SimpleNamespace(on_waiting=ignore_waiting)))
    (found,) = weekly_budget(account)
    # 600 s of 2 hosts at 18 USD, and 50 USD at most of the running job, in each of two folders.
    assert str(found).startswith("112.00 USD of 1,000.00 USD in ")
    assert ends(other)["ended in other"].usd == pytest.approx(6)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("week") / "state") as made:
        yield made


@pytest.mark.runs
def test_launch_over_the_weekly_budget_creates_no_job_unless_ignored(
    smdp_launch: Command, job_folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    (job_folder / "prices.yaml").write_text(TABLE)
    write_job(job_folder, f"{JOB}budget: {{prices: prices.yaml, max_usd_per_week: 5}}\n")
    monkeypatch.chdir(job_folder)
    environment = as_the_service(cloud.endpoint, home)
    assert smdp_launch("launch", "--yes", env=environment).returncode == ExitCode.OK  # it may cost 4.17 USD
    launched("before", datetime.now(timezone.utc), billed=300)  # 3 USD
    jobs = len(cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"])
    ran = smdp_launch("launch", "--yes", env=environment)
    assert ran.returncode == ExitCode.REFUSED
    assert "error[SMDP550]: the job may cost 4.17 USD, and this week's jobs and endpoints 3." in ran.stderr
    assert "the weekly budget does not allow this job; fix it, or launch with --ignore SMDP550" in ran.stderr
    assert len(cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"]) == jobs
    ran = smdp_launch("launch", "--yes", "--ignore", "SMDP550", env=environment)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert known_folders() == [job_folder]


def test_local_run_has_no_weekly_budget(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "prices.yaml").write_text(TABLE)
    write_job(job_folder, f"{JOB}budget: {{prices: prices.yaml, max_usd_per_week: 0.01}}\n")
    assert smdp_launch("launch", "--local", "--dry-run").returncode == ExitCode.OK
