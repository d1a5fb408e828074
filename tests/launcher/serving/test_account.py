"""Deployments in an account: the confirmation with the cost, endpoints of other folders, and expired endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pexpect
import pytest
from click.testing import CliRunner, Result

from smdp_launch.checking.job import check_job
from smdp_launch.cli.main import smdp_launch
from smdp_launch.errors import ExitCode, Refused
from smdp_launch.jobs.preflight.run import check_hosting
from smdp_launch.jobs.records.endpoints import Served, record_deleted, record_served, served
from smdp_launch.jobs.records.history import record_launch
from smdp_launch.serving.deploy import create_all, record
from smdp_launch.serving.plan import ServingPlan, serving_plan
from tests.conftest import LAUNCHER
from tests.support.job_files.examples import use_account
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.serving.served import ALL, NAME, PACKED_KEY, RUN, SERVE, archive, left, plan_for, served_job
from tests.support.waiting import wait_for

NOON = "2026-11-27T12:00:00+00:00"
PRICES = "date: 2026-11-01\nsource: our contract\nprices: {us-east-1: {ml.p4d.24xlarge: 9}}\n"
HOSTING = "hosting: {us-east-1: {ml.m5.large: 0.5}}\n"
PRICED = SERVE + "budget: {prices: prices.yaml}\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("account") / "state") as made:
        yield made


@pytest.fixture(autouse=True)
def here(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    use_account(cloud, monkeypatch)
    monkeypatch.delenv("SAGEMAKER_USER_CONFIG_OVERRIDE")  # the defaults file of a cloud that `local up` starts


def run(*arguments: str) -> Result:
    return CliRunner().invoke(smdp_launch, arguments, standalone_mode=False)


def trained(cloud: Cloud, folder: Path, serve: str = PRICED) -> str:
    """A job of this folder that the account has completed, with a model."""
    (folder / "prices.yaml").write_text(PRICES + HOSTING)
    served_job(folder, serve=serve)
    name = f"small-{folder.name.replace('_', '-')[-20:]}"
    script = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/model.txt', 'w').write('trained')\n"
    assert cloud.run(name, script)["TrainingJobStatus"] == "Completed"
    record_launch(name, "us-east-1", "job.yaml", "hash", datetime.now(timezone.utc))
    return name


def test_plan_has_the_cost_and_the_confirmation_too(cloud: Cloud, tmp_path: Path) -> None:
    trained(cloud, tmp_path)
    shown = run("deploy", "--dry-run").stdout
    assert (
        "0.50 USD an hour, 12.00 USD a day, 1.00 USD until the end of its lifetime (our contract, 2026-11-01)" in shown
    )
    assert "AWS does not end it then: run `smdp-launch endpoints --expire` after that" in shown
    refused = run("deploy")
    assert isinstance(refused.exception, Exception)
    assert "0.50 USD an hour, 12.00 USD a day" in str(refused.exception)
    assert "add --yes" in str(refused.exception)
    assert cloud.sagemaker.list_endpoints()["Endpoints"] == []


def test_quota_of_the_account_is_checked_before_a_deployment(cloud: Cloud, tmp_path: Path) -> None:
    trained(cloud, tmp_path)
    assert "quota     limit 1000, in use 0, needed 1\n" in run("deploy", "--dry-run").stdout
    account = cloud.state_dir / "account.yaml"
    account.write_text("quotas: {ml.m5.large for endpoint usage: 0}\n")
    try:
        shown = run("deploy", "--dry-run")
        assert "the quota is too small for 1 x ml.m5.large: limit 0, in use 0, needed 1" in shown.stdout
        assert "error[SMDP824]" in shown.stderr
        refused = run("deploy", "--yes")
        assert isinstance(refused.exception, Refused)
        assert "add --ignore SMDP824" in str(refused.exception)
        assert cloud.sagemaker.list_models()["Models"] == []
        ignored = run("deploy", "--yes", "--ignore", "SMDP824")
        assert "service limit 'ml.m5.large for endpoint usage' is 0 Instances" in str(ignored.exception)
        assert "nothing of the deployment is left" in str(ignored.exception)
    finally:
        account.unlink()


@pytest.mark.runs
def test_endpoints_count_towards_the_quota(cloud: Cloud, tmp_path: Path) -> None:
    """A second deployment of the same job changes nothing, so its own endpoint is not counted."""
    deployed(cloud, plan_for(cloud, tmp_path))
    account = cloud.state_dir / "account.yaml"
    account.write_text("quotas: {ml.m5.large for endpoint usage: 1}\n")
    try:
        spec = plan_for(cloud, tmp_path).spec
        with Proxy(lambda *_: None).running() as proxy:
            clients = clients_through(proxy, cloud)
            assert [one.message for one in check_hosting(clients, spec, "other").problems] == [
                "the quota is too small for 1 x ml.m5.large: limit 1, in use 1, needed 1"
            ]
            assert check_hosting(clients, spec, NAME).note == "limit 1, in use 0, needed 1"
    finally:
        account.unlink()
        wait_for(lambda: _status(cloud) == "InService", "the endpoint")
        run("undeploy", NAME, "--region", "us-east-1", "--yes")
        cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)


def test_missing_price_is_said(cloud: Cloud, tmp_path: Path) -> None:
    trained(cloud, tmp_path, SERVE)
    wanted = "not known: no hosting price of ml.m5.large in us-east-1 in the table of `budget.prices`"
    assert wanted in run("deploy", "--dry-run").stdout


def test_job_file_of_another_region_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    trained(cloud, tmp_path)
    image = "image=123456789012.dkr.ecr.eu-west-1.amazonaws.com/smdp-pytorch:2.0.1-cu118"
    refused = run("deploy", "--dry-run", "--set", "region=eu-west-1", "--set", image)
    assert "ran in us-east-1, and the job file has the region eu-west-1" in str(refused.exception)


def deployed(cloud: Cloud, plan: ServingPlan) -> None:
    with Proxy(lambda *_: None).running() as proxy:
        create_all(clients_through(proxy, cloud), plan)


def expired(cloud: Cloud, folder: Path) -> ServingPlan:
    """A deployment of three hours ago, for two hours."""
    plan_for(cloud, folder)
    ago = datetime.now(timezone.utc) - timedelta(hours=3)
    checked = check_job(folder / "job.yaml", environ={})
    model = f"s3://bucket/output/{NAME}/output/model.tar.gz"
    return serving_plan(checked, NAME, "us-east-1", model, lambda: ago, run=RUN)


@pytest.mark.runs
@pytest.mark.parametrize("knows", [True, False], ids=["this folder", "another folder"])
def test_endpoint_past_its_lifetime_is_named_and_deleted(cloud: Cloud, tmp_path: Path, *, knows: bool) -> None:
    plan = expired(cloud, tmp_path)
    record(plan, None)
    deployed(cloud, plan)
    if not knows:
        record_deleted(NAME, datetime.now(timezone.utc))
    region = [] if knows else ["--region", "us-east-1"]
    listed = run("endpoints", *region)
    assert f"warning: {NAME} is past its lifetime and still exists" in listed.stderr
    assert f"next: smdp-launch endpoints --expire{' --region us-east-1' * (not knows)}\n" in listed.stderr
    assert "over" in listed.stdout
    document: Any = json.loads(run("endpoints", *region, "--expire", "--json").stdout)
    assert document["deleted"] == [NAME]
    assert [(one["endpoint"], one["expired"]) for one in document["list"]] == [(NAME, True)]
    assert (left(cloud), served()) == ([] if knows else ["packed model"], [])
    cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)


def test_endpoint_that_cannot_be_deleted_does_not_stop_the_others(cloud: Cloud, tmp_path: Path) -> None:
    plan = expired(cloud, tmp_path)
    record(plan, None)
    deployed(cloud, plan)
    (tmp_path / "no-folder").touch()
    unreachable = Served("gone-1", "realtime", "local", "hash", NOON, expires=NOON, state=str(tmp_path / "no-folder"))
    record_served(unreachable)
    ran = run("endpoints", "--expire", "--json")
    document: Any = json.loads(ran.stdout)
    assert (ran.return_value, document["deleted"], list(document["failed"])) == (ExitCode.SERVICE, [NAME], ["gone-1"])
    assert (left(cloud), [one.endpoint for one in served()]) == ([], ["gone-1"])
    shown = run("endpoints", "--expire")
    assert (shown.return_value, "gone-1 still exists" in shown.stderr) == (ExitCode.SERVICE, True)


@pytest.mark.runs
def test_what_the_schedule_leaves_is_named_and_deleted(cloud: Cloud, tmp_path: Path) -> None:
    """At the end of the lifetime EventBridge Scheduler deletes the endpoint alone."""
    plan = plan_for(cloud, tmp_path)
    record(plan, None)
    deployed(cloud, plan)
    wait_for(lambda: _status(cloud) == "InService", "the endpoint")
    cloud.sagemaker.delete_endpoint(EndpointName=NAME)
    wait_for(lambda: _status(cloud) is None, "the end of the endpoint")
    listed = run("endpoints")
    assert f"note: {NAME}: `smdp-launch undeploy NAME` deletes the model and the rest" in listed.stderr
    assert json.loads(run("undeploy", "--yes", "--json").stdout)["missing"] == [f"endpoint {NAME}"]
    assert left(cloud) == []


def _status(cloud: Cloud) -> str | None:
    found = [one for one in cloud.sagemaker.list_endpoints()["Endpoints"] if one["EndpointName"] == NAME]
    return str(found[0]["EndpointStatus"]) if found else None


@pytest.mark.runs
def test_endpoints_without_the_tag_are_not_listed(cloud: Cloud, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    cloud.s3.put_object(Bucket="bucket", Key=PACKED_KEY, Body=archive())
    calls = (cloud.sagemaker.create_model, cloud.sagemaker.create_endpoint_config, cloud.sagemaker.create_endpoint)
    for call, request in zip(calls, plan.requests.values(), strict=True):
        call(**{key: value for key, value in request.items() if key != "Tags"})
    try:
        assert json.loads(run("endpoints", "--region", "us-east-1", "--json").stdout)["list"] == []
        refused = run("undeploy", NAME, "--region", "us-east-1", "--yes")
        assert "was not deployed by smdp-launch" in str(refused.exception)
    finally:
        tagged = plan.requests["CreateEndpoint"]["Tags"]
        arn = cloud.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointArn"]
        cloud.sagemaker.add_tags(ResourceArn=arn, Tags=tagged)
        assert run("undeploy", NAME, "--region", "us-east-1", "--yes", "--no-wait").return_value == ExitCode.OK
        cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)


@pytest.mark.runs
def test_model_of_a_job_in_the_account_is_deployed_and_deleted(cloud: Cloud, tmp_path: Path) -> None:
    name = trained(cloud, tmp_path)
    made = run("deploy", "--yes", "--json")
    assert made.exception is None, made.exception
    document = json.loads(made.stdout)
    assert (document["status"], document["cost"]["daily_usd"]) == ("InService", 12.0)
    (tmp_path / "request.json").write_text("[1, 2]")
    assert json.loads(run("invoke", "request.json").stdout) == ["trained", 2]
    (listed,) = json.loads(run("endpoints", "--json").stdout)["list"]
    assert (listed["hourly_usd"], listed["endpoint"]) == (0.5, name)
    assert listed["usd"] == pytest.approx(0.5 * listed["age_s"] / 3600)
    assert json.loads(run("undeploy", "--yes", "--json").stdout)["left"] == {}


def test_undeploy_without_a_terminal_needs_yes(cloud: Cloud, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    record(plan, None)
    deployed(cloud, plan)
    for arguments in (["undeploy"], ["undeploy", "--json"]):
        refused = run(*arguments)
        assert "a deletion on AWS (us-east-1) cannot be undone" in str(refused.exception)
        assert "add --yes" in str(refused.exception)
        assert getattr(refused.exception, "exit_code", None) == ExitCode.REFUSED
    assert left(cloud) == ALL
    wait_for(lambda: _status(cloud) == "InService", "the endpoint")
    assert json.loads(run("undeploy", "--yes", "--json").stdout)["left"] == {}
    assert left(cloud) == []


@pytest.mark.runs
@pytest.mark.parametrize("answer", ["n", "ctrl-c", "y"])
def test_undeploy_asks_on_a_terminal(cloud: Cloud, tmp_path: Path, answer: str) -> None:
    plan = plan_for(cloud, tmp_path)
    record(plan, None)
    deployed(cloud, plan)
    wait_for(lambda: _status(cloud) == "InService", "the endpoint")
    screen = on_a_screen(cloud, tmp_path, "undeploy")
    screen.expect(rf"Delete the endpoint {NAME}, its configuration and its model on AWS \(us-east-1\)\? \[y/N\]: ")
    screen.sendline(answer) if answer != "ctrl-c" else screen.sendintr()
    screen.expect("is deleted" if answer == "y" else "nothing was deleted")
    screen.expect(pexpect.EOF)
    screen.close()
    codes = {"n": ExitCode.REFUSED, "ctrl-c": ExitCode.INTERRUPTED, "y": ExitCode.OK}
    assert (screen.exitstatus, left(cloud)) == (codes[answer], [] if answer == "y" else ALL)
    run("undeploy", "--yes")


def on_a_screen(cloud: Cloud, folder: Path, *arguments: str) -> Any:
    return pexpect.spawn(
        str(LAUNCHER),
        list(arguments),
        cwd=folder,
        env=as_the_service(cloud.endpoint, folder) | {"TERM": "xterm"},
        encoding="utf-8",
        timeout=60,
        dimensions=(50, 160),
    )


@pytest.mark.runs
@pytest.mark.parametrize("answer", ["n", "ctrl-c"])
def test_confirmation_that_is_refused_creates_nothing(cloud: Cloud, tmp_path: Path, answer: str) -> None:
    trained(cloud, tmp_path)
    screen = on_a_screen(cloud, tmp_path, "deploy")
    screen.expect(r"Deploy it on AWS \(0\.50 USD an hour, 12\.00 USD a day.*\)\? \[y/N\]: ")
    screen.sendline("n") if answer == "n" else screen.sendintr()
    screen.expect("not deployed" if answer == "n" else "nothing was created")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == (ExitCode.REFUSED if answer == "n" else ExitCode.INTERRUPTED)
    assert cloud.sagemaker.list_models()["Models"] == []
    assert served() == []
