"""`cost`: what jobs, endpoints and warm pools cost, by job, tag and week, from the history alone or with AWS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.cli.render.job.follow import FollowView
from smdp_launch.cli.shared.follow_session import Answer, FollowSession, RunOptions
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.endpoints import Served, exact_time, record_deleted, record_served
from smdp_launch.jobs.records.history import record_end, record_launch, record_retained
from smdp_launch.jobs.records.lines import Retained
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.jobs.spending.groups import start_of_week, week_of
from smdp_launch.jobs.status.cost import price_of
from smdp_launch.jobs.status.description import description
from tests.conftest import JOB, Command, clean_environment, write_job
from tests.support.json_documents import the_document
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data
from tests.support.services.price_list import PriceList, product
from tests.support.services.scripted_service import ScriptedService
from tests.support.services.webhook import Webhook

P4D, P3DN = "ml.p4d.24xlarge", "ml.p3dn.24xlarge"
#: A Wednesday.
MOMENT = datetime(2026, 11, 18, 12, tzinfo=timezone.utc)
SWEEP = """\
metrics: {loss: 'loss=([0-9.]+)'}
sweep:
  objective: {metric: loss, goal: minimize}
  trials: 2
  parallel: 2
  ranges: {integer: {depth: {min: 1, max: 4}}}
"""
OFFLINE = ["cost", "--offline", "--json"]


def launched(name: str, age: timedelta = timedelta(), **more: Any) -> None:
    known: dict[str, Any] = {"hosts": 2, "price": 10.0, "prices": {P4D: 10.0}, "price_source": "ours, 2026-11-01"}
    record_launch(name, "us-east-1", "job.yaml", "0" * 64, MOMENT - age, **(known | {"instance_type": P4D} | more))


def ended(name: str, billed: int | None, trained: int | None = None, kind: str = P4D) -> None:
    answer: dict[str, Any] = {"TrainingJobStatus": "Completed", "ResourceConfig": {"InstanceType": kind}}
    if billed is not None:
        answer |= {"BillableTimeInSeconds": billed, "TrainingTimeInSeconds": trained or billed}
    record_end(name, outcome(answer), MOMENT)


@pytest.fixture
def history(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    launched("spot", timedelta(days=9), tags={"team": "vision", "stage": "test"}, spot=True)
    ended("spot", 900, 3600)
    launched("plain", tags={"team": "speech"})
    ended("plain", 1800)
    launched("untrained")
    ended("untrained", None)
    launched("unpriced", price=None, prices=None, price_source=None)
    ended("unpriced", 3600)
    record_launch("tried", "local", "job.yaml", "0" * 64, MOMENT, hosts=2)
    ended("tried", 3600)


def costs(ran: Any) -> dict[str, Any]:
    return {one["name"]: one for one in the_document(ran, "cost")["costs"]}


@pytest.mark.usefixtures("history")
def test_cost_is_price_times_hosts_times_billed_seconds(smdp_launch: Command) -> None:
    ran = smdp_launch(*OFFLINE)
    found = costs(ran)
    assert {name: one["usd"] for name, one in found.items()} == {
        "spot": 5.0,
        "plain": 10.0,
        "untrained": 0.0,
        "unpriced": None,
    }
    assert (found["spot"]["saved_usd"], found["plain"]["saved_usd"]) == (15.0, None)
    document = json.loads(ran.stdout)
    assert document["total"] == {
        "name": "total",
        "costs": 4,
        "instance_hours": 3.5,
        "usd": 15.0,
        "saved_usd": 15.0,
        "unknown": 1,
    }
    command = "smdp-launch catalog prices --region us-east-1 --update"
    assert document["unpriced"] == [{"region": "us-east-1", "instance_type": P4D, "command": command}]


@pytest.mark.usefixtures("history")
def test_table_shows_hours_without_a_price_and_names_the_command_for_prices(smdp_launch: Command) -> None:
    ran = smdp_launch("cost", "--offline")
    rows = {line.split()[0]: re.split(r" {2,}", line) for line in ran.stdout.splitlines()}
    assert rows["unpriced"][-4:] == ["2.00", "-", "-", "-"]
    assert rows["spot"][-4:] == ["0.50", "5.00", "75%", "15.00"]
    assert ran.stdout.splitlines()[-1] == (
        "total: 3.50 instance-hours, 15.00 USD, and 1 cost that is not known; spot capacity saved 15.00 USD (75%)"
    )
    assert f"no price is known of {P4D} in us-east-1" in ran.stderr
    assert ran.stderr.endswith("next: smdp-launch catalog prices --region us-east-1 --update\n")
    assert "prices: ours, 2026-11-01" in ran.stderr


def test_saving_of_spot_capacity_is_shown_without_a_price(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch, smdp_launch: Command
) -> None:
    """The service's example: 100 of 500 seconds billed are 80 %."""
    monkeypatch.chdir(job_folder)
    for name, billed, trained in (("spot", 100, 500), ("other", 300, 300)):
        launched(name, spot=True, price=None, prices=None, price_source=None)
        ended(name, billed, trained)
    lines = smdp_launch("cost", "--offline").stdout.splitlines()
    rows = {line.split()[0]: re.split(r" {2,}", line) for line in lines}
    assert (rows["NAME"][-1], rows["spot"][-1], rows["other"][-1]) == ("SAVED", "80%", "-")
    assert lines[-1].endswith("; spot capacity saved 0.22 instance-hours (80%)")


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        (["--by", "week"], {"2026-W47": (10.0, 3), "2026-W46": (5.0, 1)}),
        (
            ["--by", "tag"],
            {"team=speech": (10.0, 1), "team=vision": (5.0, 1), "stage=test": (5.0, 1), "(no tag)": (0, 2)},
        ),
        (["--by", "tag", "--tag", "stage"], {"stage=test": (5.0, 1), "(no tag)": (10.0, 3)}),
        (["--by", "week", "--since", "2026-11-16T00:00+00:00"], {"2026-W47": (10.0, 3)}),
    ],
)
def test_costs_are_summed_by_tag_and_by_week(
    smdp_launch: Command, arguments: list[str], groups: dict[str, Any]
) -> None:
    document = the_document(smdp_launch(*OFFLINE, *arguments), "cost")
    assert {one["name"]: (one["usd"], one["costs"]) for one in document["groups"]} == groups
    shown = smdp_launch("cost", "--offline", *arguments).stdout.splitlines()[1:-1]
    assert {re.split(r" {2,}", line)[0] for line in shown} == set(groups)


def test_price_of_the_type_that_a_job_got_is_used(smdp_launch: Command, job_folder: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(job_folder)
    launched("fallback", price=20.0, prices={P4D: 20.0, P3DN: 8.0}, instance_type=None)
    ended("fallback", 3600, kind=P3DN)
    assert costs(smdp_launch(*OFFLINE))["fallback"]["usd"] == 16.0
    (job_folder / "own.yaml").write_text("{date: 2026-11-09, source: ours, prices: {us-east-1: {ml.p3dn.24xlarge: 3}}}")
    found = costs(smdp_launch(*OFFLINE, "--prices", "own.yaml"))["fallback"]
    assert (found["usd"], found["price_source"]) == (6.0, "ours, 2026-11-09")


def test_status_and_follow_use_the_price_of_the_type_that_a_job_got(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    launched("fallback", price=20.0, prices={P4D: 20.0, P3DN: 8.0}, instance_type=None)
    answer = {"TrainingJobName": "fallback", "TrainingJobStatus": "InProgress", "CreationTime": MOMENT}
    pending = description({**answer, "ResourceConfig": {}}, MOMENT)
    selected = description({**answer, "ResourceConfig": {"SelectedInstanceType": P3DN}}, MOMENT)
    assert (price_of(pending, "us-east-1"), price_of(selected, "us-east-1")) == (20.0, 8.0)
    clients, options = ScriptedService().clients(), RunOptions("us-east-1")
    session, view = FollowSession(clients, "fallback", None, Answer.DETACH, options=options), FollowView(None)
    shown = []
    for one in (pending, selected, selected):
        session._describe(view, one)
        shown.append(session._shown.price)
    assert shown == [20.0, 8.0, 8.0]


@pytest.mark.usefixtures("history")
def test_fetched_prices_are_used_where_the_launch_had_none(smdp_launch: Command, tmp_path: Path) -> None:
    with PriceList([[product("USE1-Train:ml.p4d.24xlarge", "4")]]) as service:
        environment = service.environment(tmp_path / "home")
        smdp_launch("catalog", "prices", "--region", "us-east-1", "--update", env=environment)
    found = costs(smdp_launch(*OFFLINE, env=environment))
    assert (found["unpriced"]["usd"], found["plain"]["usd"]) == (8.0, 10.0)
    assert "AWS Price List API" in found["unpriced"]["price_source"]


def test_endpoints_and_warm_pools_cost_until_they_end(
    smdp_launch: Command, job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    launched("pooled", keep_alive=3600)
    ended("pooled", 1800)
    record_retained(Retained("pooled", "Terminated", 360))
    now = datetime.now(timezone.utc)
    for name, hours in (("gone", 5), ("runs", 4)):
        began = exact_time(now - timedelta(hours=hours))
        record_served(Served(name, "realtime", "us-east-1", "hash", began, hosts=2, hourly_usd=1.0))
    record_deleted("gone", now - timedelta(hours=2))
    ran = smdp_launch(*OFFLINE)
    found = {(one["kind"], one["name"]): one for one in json.loads(ran.stdout)["costs"]}
    assert found["warm pool", "pooled"]["usd"] == pytest.approx(2.0)
    assert found["endpoint", "gone"]["usd"] == pytest.approx(3.0, rel=1e-3)
    assert found["endpoint", "runs"]["usd"] == pytest.approx(4.0, rel=0.1)
    assert (found["endpoint", "runs"]["open"], found["endpoint", "gone"]["open"]) == (True, False)
    shown = smdp_launch("cost", "--offline").stderr
    assert re.search(
        r"running: endpoint runs since 4 h.*\(24.00 USD a day\); end it: smdp-launch undeploy runs\n", shown
    )
    assert "endpoint gone" not in shown


def test_week_is_the_iso_week_in_utc() -> None:
    midnight = datetime(2026, 11, 16, tzinfo=timezone.utc)
    assert start_of_week(MOMENT) == midnight
    assert (week_of(midnight), week_of(midnight - timedelta(seconds=1))) == ("2026-W47", "2026-W46")
    assert week_of(datetime(2027, 1, 1, tzinfo=timezone.utc)) == "2026-W53"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--tag", "team"], ExitCode.USAGE, "--tag needs --by tag"),
        (["--by", "month"], ExitCode.USAGE, "'job', 'tag', 'week'"),
        (["--prices", "nowhere.yaml"], ExitCode.ENVIRONMENT, "the price table nowhere.yaml cannot be used"),
    ],
)
def test_wrong_options_are_refused(smdp_launch: Command, arguments: list[str], code: ExitCode, message: str) -> None:
    ran = smdp_launch("cost", *arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert message in ran.stderr


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("cost") / "state") as made:
        yield made


@pytest.mark.runs
def test_job_that_ran_on_the_service_costs_its_billed_seconds_and_its_pool_is_idle(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, cloud: Cloud
) -> None:
    table = f"{{date: 2026-11-01, source: ours, prices: {{us-east-1: {{{P4D}: 36}}}}}}"
    (job_folder / "prices.yaml").write_text(table)
    text = JOB.replace("max_run: 600", "max_run: 600\n  keep_alive: 3600") + "budget: {prices: prices.yaml}\n"
    write_job(job_folder, f"{text}tags: {{team: vision}}\n")
    environment = as_the_service(cloud.endpoint, tmp_path)
    assert smdp_launch("launch", "--yes", env=environment).returncode == ExitCode.OK
    ran = smdp_launch("cost", "--json", env=environment)
    found = {one["kind"]: one for one in the_document(ran, "cost")["costs"]}
    described = cloud.describe(found["job"]["name"])
    assert found["job"]["billable_seconds"] == described["BillableTimeInSeconds"]
    assert found["job"]["usd"] == pytest.approx(described["BillableTimeInSeconds"] * 2 * 0.01)
    assert (found["job"]["tags"], found["job"]["open"]) == ({"team": "vision"}, False)
    assert (found["warm pool"]["status"], found["warm pool"]["open"]) == ("Available", True)
    shown = smdp_launch("cost", env=environment).stderr
    assert f"idle: the warm pool of {found['job']['name']}" in shown
    assert "aws sagemaker update-training-job" in shown
    offline = costs(smdp_launch(*OFFLINE, env=environment))
    assert offline[found["job"]["name"]]["usd"] == found["job"]["usd"]


@pytest.mark.runs
def test_sweep_costs_the_seconds_of_its_trials_and_notifies_at_its_end(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, cloud: Cloud
) -> None:
    (job_folder / "prices.yaml").write_text(f"{{date: 2026-11-01, source: ours, prices: {{us-east-1: {{{P4D}: 36}}}}}}")
    more = "budget: {prices: prices.yaml}\nnotify: {webhook: TEAM_WEBHOOK}\n"
    write_job(job_folder, f"{JOB}{SWEEP}{more}", "print('loss=1')\n")
    with Webhook() as webhook:
        environment = as_the_service(cloud.endpoint, tmp_path) | {"TEAM_WEBHOOK": webhook.address}
        ran = smdp_launch("launch", "--yes", env=environment)
        assert ran.returncode == ExitCode.OK, ran.stderr
        assert [(one["kind"], one["summary"]) for one in webhook.messages] == [("completed", "completed")]
    (found,) = costs(smdp_launch(*OFFLINE, env=environment)).values()
    call = cloud.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job
    trials = call(HyperParameterTuningJobName=found["name"])["TrainingJobSummaries"]
    billed = sum(cloud.describe(one["TrainingJobName"])["BillableTimeInSeconds"] for one in trials)
    assert (len(trials), found["kind"], found["billable_seconds"]) == (2, "sweep", billed)
    assert found["usd"] == pytest.approx(billed * 2 * 0.01)


def test_unreachable_service_leaves_what_is_recorded(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    launched("done")
    ended("done", 3600)
    launched("running", most_usd=99.0)
    environment = clean_environment(HOME=str(tmp_path), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("cost", env=environment)
    assert ran.returncode == ExitCode.OK
    assert re.search(r"^done .* 20.00$", ran.stdout, re.MULTILINE)
    assert re.search(r"^running .* at most 99.00$", ran.stdout, re.MULTILINE)
    assert "not up to date: no AWS credentials were found" in ran.stderr
