"""Deployments to a service that fails, refuses or has other endpoints; schedules; endpoints past their lifetime."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import Refused, ServiceProblem
from smdp_launch.jobs.records.endpoints import find_served
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.request.serving import EXPIRES_TAG
from smdp_launch.serving.deploy import RolledBack, create_all, existing_deployment, record
from smdp_launch.serving.follow import wait_until_ready
from smdp_launch.serving.listing import ListedEndpoint
from smdp_launch.serving.resources import ENDPOINT, tags_of
from smdp_launch.serving.undeploy import undeploy
from tests.support.services.cloud import Cloud, client_of
from tests.support.services.faults import Fault, Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.serving.scheduler import Scheduler
from tests.support.serving.served import ALL, NAME, PACKED_KEY, SERVE, archive, first, left, plan_for, undeployed_after
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("own_folder")
CALLS = ("CreateModel", "CreateEndpointConfig", "CreateEndpoint")
ROLE = "arn:aws:iam::123456789012:role/expiry"
SCHEDULED = SERVE.replace("lifetime: 7200", f'lifetime: 7200, expiry_role: "{ROLE}"')


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("deploy") / "state") as made:
        yield made


@pytest.fixture
def clients(cloud: Cloud) -> Iterator[Clients]:
    with undeployed_after(cloud) as made:
        yield made
        cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)  # for tests that record no deployment


@pytest.fixture
def scheduler(clients: Clients, cloud: Cloud) -> Iterator[Scheduler]:
    with Scheduler().running() as server:
        of_cloud, client = clients.service, client_of(cloud.endpoint, "scheduler", endpoint_url=server.url)
        clients.service = lambda name: client if name == "scheduler" else of_cloud(name)
        yield server


@pytest.mark.parametrize(
    "fault",
    [
        Fault.RESET_AFTER,
        *(pytest.param(one, marks=pytest.mark.runs) for one in (Fault.RESET_BEFORE, Fault.THROTTLED, Fault.EXPIRED)),
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_lost_answer_gives_one_deployment(
    cloud: Cloud, clients: Clients, tmp_path: Path, fault: Fault, call: str
) -> None:
    with Proxy(first(fault, call)).running() as proxy:
        create_all(clients_through(proxy, cloud), plan_for(cloud, tmp_path))
        assert proxy.faults[fault] == 1
        assert proxy.accepted[call] == 1
    assert left(cloud) == ALL


@pytest.mark.parametrize(
    "call", ["CreateEndpoint", *(pytest.param(one, marks=pytest.mark.runs) for one in ("PUT", *CALLS[:2]))]
)
def test_call_that_always_fails_leaves_nothing(cloud: Cloud, tmp_path: Path, call: str) -> None:
    undone: list[RolledBack] = []
    with Proxy(lambda operation, _: Fault.ERROR if operation == call else None).running() as proxy:
        made = clients_through(proxy, cloud)
        made.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, total=0.2)
        with pytest.raises(ServiceProblem, match=r"nothing of the deployment is left: deleted|nothing was created"):
            create_all(made, plan_for(cloud, tmp_path), on_rolled_back=undone.append)
    assert [one.left for one in undone] == [{}]
    assert left(cloud) == []


def test_what_cannot_be_deleted_is_named(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    failing = ("CreateEndpoint", "DeleteModel")
    with Proxy(lambda operation, _: Fault.ERROR if operation in failing else None).running() as proxy:
        made = clients_through(proxy, cloud)
        made.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, total=0.2)
        wanted = rf"these could not be deleted: model {NAME} \(.*\); `smdp-launch undeploy {NAME}` deletes them"
        with pytest.raises(ServiceProblem, match=wanted):
            create_all(made, plan_for(cloud, tmp_path))
    assert left(cloud) == ["model"]
    assert f"model {NAME}" in undeploy(clients, NAME, None).deleted


def test_another_endpoint_with_the_name_is_kept(cloud: Cloud, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    requests = plan.requests
    untagged = {name: {key: value for key, value in one.items() if key != "Tags"} for name, one in requests.items()}
    cloud.s3.put_object(Bucket="bucket", Key=PACKED_KEY, Body=archive())
    cloud.sagemaker.create_model(**untagged["CreateModel"])
    try:
        with Proxy(lambda *_: None).running() as proxy:
            made = clients_through(proxy, cloud)
            with pytest.raises(Refused, match=f"there is another model {NAME} that smdp-launch has not created"):
                create_all(made, plan)
            assert left(cloud) == ["model"]
    finally:
        cloud.sagemaker.delete_model(ModelName=NAME)


def test_same_deployment_is_found_and_another_is_refused(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    assert existing_deployment(clients, plan) is None
    create_all(clients, plan)
    assert existing_deployment(clients, plan) in ("Creating", "InService")
    other = plan_for(cloud, tmp_path, serve=SERVE.replace("m5.large", "m5.xlarge"))
    with pytest.raises(Refused, match=f"smdp-launch undeploy {NAME}"):
        existing_deployment(clients, other)


@pytest.mark.runs
def test_endpoint_that_starts_is_deleted_when_it_has_started(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    create_all(clients, plan_for(cloud, tmp_path))
    result = undeploy(clients, NAME, None)
    assert f"endpoint {NAME}" in result.deleted


def test_endpoint_that_goes_during_an_undeploy_is_not_there(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    create_all(clients, plan_for(cloud, tmp_path))
    cloud.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=NAME, WaiterConfig={"Delay": 1})

    def remove(operation: str, _: str) -> Fault | None:
        if operation == "ListTags" and "endpoint" in left(cloud):
            cloud.sagemaker.delete_endpoint(EndpointName=NAME)
            wait_for(lambda: "endpoint" not in left(cloud), "the endpoint to be removed")
        return None

    with Proxy(remove).running() as proxy:
        result = undeploy(clients_through(proxy, cloud), NAME, None)
    assert result.missing == [f"endpoint {NAME}"]
    assert result.deleted == [f"endpoint configuration {NAME}", f"model {NAME}"]


def test_tags_that_are_throttled_are_read_again(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    create_all(clients, plan_for(cloud, tmp_path))
    with Proxy(first(Fault.THROTTLED, "ListTags")).running() as proxy:
        assert f"endpoint {NAME}" in undeploy(clients_through(proxy, cloud), NAME, None).deleted
        assert proxy.faults[Fault.THROTTLED] == 1


def test_schedule_stands_before_the_endpoint_and_is_deleted_with_it(
    cloud: Cloud, clients: Clients, scheduler: Scheduler, tmp_path: Path
) -> None:
    plan = plan_for(cloud, tmp_path, serve=SCHEDULED)
    created: list[str] = []
    record(plan, None)
    create_all(clients, plan, created.append)
    assert [one.split()[0] for one in created] == ["packed", "model", "schedule", "endpoint", "endpoint"]
    assert plan.expires is not None
    assert scheduler.schedules[NAME]["ScheduleExpression"] == f"at({plan.expires:%Y-%m-%dT%H:%M:%S})"
    assert scheduler.schedules[NAME]["Target"]["RoleArn"] == ROLE
    assert f"schedule {NAME}" in undeploy(clients, NAME, find_served(NAME)).deleted
    assert scheduler.schedules == {}


def test_schedule_that_is_refused_leaves_no_endpoint(
    cloud: Cloud, clients: Clients, scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.refuses = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
    with pytest.raises(ServiceProblem, match="must allow AWS EventBridge Scheduler to assume the role"):
        create_all(clients, plan_for(cloud, tmp_path, serve=SCHEDULED))
    assert left(cloud) == []


@pytest.mark.runs
def test_endpoint_of_the_account_has_its_end_in_a_tag(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    create_all(clients, plan)
    wait_until_ready(clients, NAME, ENDPOINT, lambda _: None, clients.interrupted.wait)
    arn = clients.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointArn"]
    assert plan.expires is not None
    assert tags_of(clients, arn)[EXPIRES_TAG] == f"{plan.expires:%Y-%m-%dT%H:%M:%S}"


@pytest.mark.runs
def test_endpoint_of_another_tool_is_not_deleted(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    requests: dict[str, Any] = {
        name: {key: value for key, value in one.items() if key != "Tags"} for name, one in plan.requests.items()
    }
    cloud.s3.put_object(Bucket="bucket", Key=PACKED_KEY, Body=archive())
    cloud.sagemaker.create_model(**requests["CreateModel"])
    cloud.sagemaker.create_endpoint_config(**requests["CreateEndpointConfig"])
    cloud.sagemaker.create_endpoint(**requests["CreateEndpoint"])
    with pytest.raises(Refused, match="was not deployed by smdp-launch"):
        undeploy(clients, NAME, None)
    arns = {
        "CreateModel": clients.sagemaker.describe_model(ModelName=NAME)["ModelArn"],
        "CreateEndpointConfig": clients.sagemaker.describe_endpoint_config(EndpointConfigName=NAME)[
            "EndpointConfigArn"
        ],
        "CreateEndpoint": clients.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointArn"],
    }
    for call, arn in arns.items():  # so that the fixture can delete them
        cloud.sagemaker.add_tags(ResourceArn=arn, Tags=plan.requests[call]["Tags"])


def listed(expires: datetime | None, status: str | None = "InService") -> ListedEndpoint:
    now = datetime(2026, 11, 27, 5, 0, 0, tzinfo=timezone.utc)
    return ListedEndpoint("one", "us-east-1", status, now - timedelta(hours=2), now, None, expires)


def test_endpoint_is_expired_after_its_lifetime_unless_it_is_gone() -> None:
    now = listed(None).now
    assert [listed(one).is_expired for one in (None, now, now + timedelta(seconds=1))] == [False, True, False]
    assert [listed(now, one).is_expired for one in ("Deleted", "Failed", None)] == [False, False, True]
    assert listed(now + timedelta(minutes=5)).left_s == 300
    assert listed(now).age_s == 7200
