"""`list`: filters, the limit, and the columns on narrow terminals."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import ends, record_end, record_launch
from smdp_launch.jobs.records.outcome import NO_JOB, outcome
from smdp_launch.jobs.status.list_jobs import jobs_of_folder
from tests.conftest import Command
from tests.support.json_documents import the_document
from tests.support.services.busy_account import BusyAccount
from tests.support.terminal import on_a_terminal

NOW = datetime.now(timezone.utc)
#: Name, where, status and age of each job that was launched from the folder, oldest first.
JOBS = [
    ("old", "us-east-1", "Completed", timedelta(days=9)),
    ("broken", "eu-west-1", "Failed", timedelta(hours=5)),
    ("tried", "local", "Completed", timedelta(hours=3)),
    ("newest", "us-east-1", "Stopped", timedelta(minutes=5)),
]


@pytest.fixture(autouse=True)
def history(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    for name, where, status, age in JOBS:
        record_launch(name, where, "job.yaml", "0" * 64, NOW - age, hosts=2, price=10.0, most_usd=100.0)
        ended = {"TrainingJobStatus": status, "SecondaryStatus": "MaxRuntimeExceeded", "BillableTimeInSeconds": 3600}
        record_end(name, outcome(ended), NOW)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["newest", "tried", "broken", "old"]),
        (["--status", "Completed"], ["tried", "old"]),
        (["--status", "failed"], ["broken"]),
        (["--local"], ["tried"]),
        (["--aws"], ["newest", "broken", "old"]),
        (["--since", "4h"], ["newest", "tried"]),
        (["--since", "1d", "--aws"], ["newest", "broken"]),
        (["--limit", "2"], ["newest", "tried"]),
        (["--aws", "--limit", "2"], ["newest", "broken"]),
        (["--status", "InProgress"], []),
    ],
)
def test_filters_choose_the_jobs_in_both_forms(smdp_launch: Command, arguments: list[str], names: list[str]) -> None:
    shown = json.loads(smdp_launch("list", *arguments, "--json").stdout)["jobs"]
    assert [one["job"] for one in shown] == names
    ran = smdp_launch("list", *arguments)
    if names:
        assert [line.split()[0] for line in ran.stdout.splitlines()] == ["NAME", *names]
    else:
        assert ran.stdout == "no job from this folder matches the filters\n"
    assert ("raise --limit" in ran.stderr) == ("--limit" in arguments)


def test_columns_are_dropped_until_the_table_fits(job_folder: Path) -> None:
    for columns, titles in (
        (140, ["NAME", "STATUS", "WHERE", "CREATED (UTC)", "RUNTIME", "HOSTS", "COST (USD)", "DETAILS"]),
        (80, ["NAME", "STATUS", "WHERE", "CREATED (UTC)", "DETAILS"]),
        (40, ["NAME", "STATUS", "WHERE"]),
    ):
        lines = on_a_terminal(job_folder, ["list"], columns, NO_COLOR="1").splitlines()
        assert re.split(r" {2,}", lines[0]) == titles
        assert all(len(line) <= columns for line in lines[:-1])
        assert "stopped at its maximum run time" in lines[1] or columns == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--status", "Done"], "'completed'"),
        (["--since", "yesterday"], "is no time"),
        (["--region", "us-east-1", "--local"], "remove --local"),
    ],
)
def test_invalid_filter_is_a_usage_error(smdp_launch: Command, arguments: list[str], message: str) -> None:
    ran = smdp_launch("list", *arguments)
    assert ran.returncode == ExitCode.USAGE
    assert message in ran.stderr


def test_launch_without_a_job_does_not_list_the_whole_account(monkeypatch: pytest.MonkeyPatch) -> None:
    record_launch("refused", "us-east-1", "job.yaml", "0" * 64, NOW - timedelta(days=2), hosts=2, most_usd=100.0)
    record_launch("early", "us-east-1", "job.yaml", "0" * 64, NOW - timedelta(days=2), hosts=2, most_usd=100.0)
    account = BusyAccount({"early": {"TrainingJobStatus": "InProgress"}}, others=600)
    account.serve(monkeypatch)
    listed = {one.job: (one.status, one.summary) for one in jobs_of_folder(10)}
    assert listed["refused"] == (None, "never accepted by the service")
    assert listed["early"] == ("InProgress", "InProgress")
    assert account.calls == ["ListTrainingJobs"] * 2 + ["DescribeTrainingJob"] * 2
    assert "refused" not in ends()  # the account may be another one, and the job may run


@pytest.mark.parametrize("unknown", [1, 60])
def test_whole_list_of_the_account_is_not_asked_for_each_job(monkeypatch: pytest.MonkeyPatch, unknown: int) -> None:
    for number in range(unknown):
        record_launch(f"refused-{number}", "us-east-1", "job.yaml", "0" * 64, NOW - timedelta(days=29), hosts=2)
    account = BusyAccount({})
    account.serve(monkeypatch)
    listed = jobs_of_folder(100)
    assert [one.summary for one in listed].count("never accepted by the service") == unknown
    assert account.calls == ["ListTrainingJobs"]
    assert not any(one.startswith("refused") for one in ends())


def test_refused_launch_has_no_status(smdp_launch: Command) -> None:
    record_launch("refused", "us-east-1", "job.yaml", "0" * 64, NOW, hosts=2, price=10.0, most_usd=100.0)
    record_end("refused", NO_JOB, NOW)
    listed = the_document(smdp_launch("list", "--json"), "list")["jobs"][0]
    assert (listed["job"], listed["training_job_status"], listed["usd"]) == ("refused", None, 0.0)
