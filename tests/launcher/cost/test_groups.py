"""A job with several groups costs the sum of its groups, in every view, and shows the hosts of each type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch.catalog.prices import mean_price
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import find_launch
from smdp_launch.jobs.status.description import description, hosts_text
from tests.conftest import JOB, Command, write_job
from tests.support.json_documents import the_document
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data

P4D, C5 = "ml.p4d.24xlarge", "ml.c5.18xlarge"
GROUPS = f"  max_run: 600\n  other_groups: {{data: {{instance_type: {C5}, instance_count: 1}}}}\n"
#: USD a second: 0.02 for the two hosts that train, and 0.001 for the other one.
TABLE = f"{{date: 2026-11-01, source: ours, prices: {{us-east-1: {{{P4D}: 36, {C5}: 3.6}}}}}}"
SCRIPT = "import os\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'])\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("groups") / "state") as made:
        yield made


def test_every_view_shows_the_sum_of_the_groups(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_folder / "prices.yaml").write_text(TABLE)
    text = JOB.replace("  max_run: 600\n", GROUPS) + "budget: {prices: prices.yaml}\ntags: {team: vision}\n"
    write_job(job_folder, text, SCRIPT)
    environment = as_the_service(cloud.endpoint, tmp_path)
    ran = smdp_launch("launch", "--yes", env=environment)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    (cost,) = the_document(smdp_launch("cost", "--json", env=environment), "cost")["costs"]
    billed = cloud.describe(cost["name"])["BillableTimeInSeconds"]
    assert cost["types"] == {P4D: 2, C5: 1}
    assert (cost["hosts"], cost["instance_type"], cost["billable_seconds"]) == (3, None, billed)
    assert cost["usd"] == pytest.approx(billed * 0.021)
    assert f"2 x {P4D}, 1 x {C5}" in smdp_launch("cost", env=environment | {"COLUMNS": "200"}).stdout
    (listed,) = the_document(smdp_launch("list", "--json", env=environment), "list")["jobs"]
    assert (listed["hosts"], listed["usd"]) == (3, pytest.approx(billed * 0.021))
    status = the_document(smdp_launch("status", cost["name"], "--json", env=environment), "status")
    assert (status["types"], status["instance_type"]) == ({P4D: 2, C5: 1}, None)
    assert status["usd"] == pytest.approx(billed * 0.021)
    shown = smdp_launch("status", cost["name"], env=environment | {"COLUMNS": "200"}).stdout
    assert f"2 hosts of {P4D} and 1 host of {C5}" in shown
    monkeypatch.chdir(job_folder)
    launch = find_launch(cost["name"])
    assert launch is not None
    assert (launch.hosts, launch.types, launch.instance_type, launch.prices) == (3, {P4D: 2, C5: 1}, None, None)
    assert launch.most_usd == pytest.approx(600 * 0.021)
    assert launch.price_source == "ours, 2026-11-01"


def test_table_of_prices_replaces_those_of_the_launch(
    smdp_launch: Command, job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smdp_launch.jobs.records.history import record_end, record_launch
    from smdp_launch.jobs.records.outcome import outcome

    monkeypatch.chdir(job_folder)
    now = datetime.now(timezone.utc)
    types = {P4D: 2, C5: 1}
    record_launch("job", "us-east-1", "job.yaml", "0" * 64, now, hosts=3, price=99.0, types=types)
    answer = {"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 100, "TrainingTimeInSeconds": 100}
    record_end("job", outcome(answer), now)
    (job_folder / "prices.yaml").write_text(TABLE)
    documents = [
        json.loads(smdp_launch("cost", "--offline", "--json", *more).stdout)
        for more in ([], ["--prices", "prices.yaml"])
    ]
    assert [one["costs"][0]["usd"] for one in documents] == [pytest.approx(8.25), pytest.approx(2.1)]


def test_missing_price_of_one_group_leaves_the_cost_unknown() -> None:
    assert mean_price({P4D: 36.0}, {P4D: 2, C5: 1}) is None
    assert mean_price({P4D: 36.0, C5: 3.0}, {P4D: 2, C5: 1}) == pytest.approx(25.0)


def test_hosts_of_one_type_are_shown_as_before() -> None:
    assert hosts_text(2, P4D, {}) == f"2 hosts of {P4D}"
    assert hosts_text(1, None, {}) == "1 host"
    described = description(
        {
            "TrainingJobName": "job",
            "TrainingJobStatus": "InProgress",
            "CreationTime": datetime.now(timezone.utc),
            "ResourceConfig": {"InstanceType": P4D, "InstanceCount": 2},
        },
        datetime.now(timezone.utc),
    )
    assert (described.types, described.hosts_text) == ({}, f"2 hosts of {P4D}")
