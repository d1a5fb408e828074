"""What a deployment did not create stays: resources of other tools, and of a simultaneous deployment of the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.cli.commands.deploy.session import DeployOptions, DeploySession
from smdp_launch.cli.shared.serving import TrainedJob
from smdp_launch.errors import EndpointFailed, ExitCode, Refused
from smdp_launch.jobs.records.endpoints import served
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.serving.deploy import create_all, forget, record, roll_back
from smdp_launch.serving.endpoint import deploy_and_wait
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import MODEL, resource
from smdp_launch.serving.undeploy import undeploy
from tests.support.services.cloud import Cloud, client_of
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.serving.scheduler import Scheduler
from tests.support.serving.served import ALL, BREAKS, NAME, PACKED_KEY, SERVE, archive, left, plan_for, undeployed_after

pytestmark = pytest.mark.usefixtures("own_folder")
ROLE = "arn:aws:iam::123456789012:role/expiry"
SCHEDULED = SERVE.replace("lifetime: 7200", f'lifetime: 7200, expiry_role: "{ROLE}"')
OTHER_TAG = [{"Key": "team", "Value": "vision"}]
OPTIONS = DeployOptions(is_local=False, dry_run=False, yes=True, wait=True, as_json=False)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("ownership") / "state") as made:
        yield made


@pytest.fixture
def clients(cloud: Cloud) -> Iterator[Clients]:
    with undeployed_after(cloud) as made:
        yield made


def of_another_tool(cloud: Cloud, plan: ServingPlan) -> None:
    """A model and a configuration with the job's name, which have only a tag of their own."""
    cloud.s3.put_object(Bucket="bucket", Key=PACKED_KEY, Body=archive())
    requests: dict[str, Any] = {name: {**one, "Tags": OTHER_TAG} for name, one in plan.requests.items()}
    cloud.sagemaker.create_model(**requests["CreateModel"])
    cloud.sagemaker.create_endpoint_config(**requests["CreateEndpointConfig"])


def test_undeploy_keeps_the_model_and_the_configuration_of_another_tool(cloud: Cloud, tmp_path: Path) -> None:
    of_another_tool(cloud, plan_for(cloud, tmp_path))
    try:
        with Proxy(lambda *_: None).running() as proxy:
            result = undeploy(clients_through(proxy, cloud), NAME, None)
        assert (result.deleted, result.missing) == ([], [f"endpoint {NAME}"])
        assert result.kept == [f"endpoint configuration {NAME}", f"model {NAME}"]
        assert left(cloud) == ALL[:3]
    finally:
        cloud.sagemaker.delete_endpoint_config(EndpointConfigName=NAME)
        cloud.sagemaker.delete_model(ModelName=NAME)
        cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)


def test_second_deployment_with_the_same_settings_leaves_the_first_one(
    cloud: Cloud, clients: Clients, tmp_path: Path
) -> None:
    """Both have found no endpoint; the first one has then created all resources."""
    first, second = plan_for(cloud, tmp_path), plan_for(cloud, tmp_path, run="0123456789abcdef")
    assert first.deployment.hash == second.deployment.hash
    record(first, None)
    record(second, None)
    create_all(clients, first)
    wanted = f"another deployment with the same settings has created model {NAME}"
    with pytest.raises(Refused, match=wanted) as refused:
        create_all(clients, second, on_rolled_back=lambda undone: forget(second, undone))
    assert f"deleted packed model {second.packed}" in str(refused.value)
    assert left(cloud) == ALL
    assert [one.packed for one in served()] == [str(first.packed)]


def test_rollback_leaves_resources_of_another_deployment(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    """The answer of the creation was lost, so that it is not known whether it has succeeded."""
    first, second = plan_for(cloud, tmp_path), plan_for(cloud, tmp_path, run="0123456789abcdef")
    created = create_all(clients, first)
    undone = roll_back(clients, [resource(clients, MODEL, second.requests["CreateModel"])])
    assert (undone.deleted, undone.left, left(cloud)) == ([], {}, ALL)
    assert len(roll_back(clients, created).deleted) == 4


def test_other_settings_are_named_in_the_refusal(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    create_all(clients, plan_for(cloud, tmp_path))
    record(plan_for(cloud, tmp_path), None)
    other = plan_for(cloud, tmp_path, serve=SERVE.replace("m5.large", "m5.xlarge"), run="0123456789abcdef")
    with pytest.raises(Refused, match=f"with other settings: `smdp-launch undeploy {NAME}` deletes it"):
        create_all(clients, other)


def test_schedule_is_deleted_from_another_folder(cloud: Cloud, clients: Clients, tmp_path: Path) -> None:
    with Scheduler().running() as scheduler:
        of_cloud, client = clients.service, client_of(cloud.endpoint, "scheduler", endpoint_url=scheduler.url)
        clients.service = lambda name: client if name == "scheduler" else of_cloud(name)  # type: ignore[method-assign]
        create_all(clients, plan_for(cloud, tmp_path, serve=SCHEDULED))
        assert f"schedule {NAME}" in undeploy(clients, NAME, None).deleted
        assert scheduler.schedules == {}
    cloud.s3.delete_object(Bucket="bucket", Key=PACKED_KEY)


def session(clients: Clients, plan: ServingPlan) -> DeploySession:
    return DeploySession(clients, plan, TrainedJob(NAME, "us-east-1", None, Path()), OPTIONS)


def test_second_deploy_waits_for_the_endpoint(
    cloud: Cloud, clients: Clients, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_for(cloud, tmp_path)
    record(plan, None)
    create_all(clients, plan)
    assert session(clients, plan_for(cloud, tmp_path)).run() == ExitCode.OK
    assert cloud.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointStatus"] == "InService"
    assert f"{NAME}: InService" in capsys.readouterr().out


@pytest.mark.parametrize("api", ["command", "python"])
def test_second_deploy_reports_a_failure_and_deletes_nothing(
    cloud: Cloud, clients: Clients, tmp_path: Path, api: str
) -> None:
    serve = SERVE.replace("}", ", startup_timeout: 60}")
    plan = plan_for(cloud, tmp_path, BREAKS, serve)
    record(plan, None)
    create_all(clients, plan)
    again = plan_for(cloud, tmp_path, BREAKS, serve, run="0123456789abcdef")
    with pytest.raises(EndpointFailed, match="no such weights"):
        session(clients, again).run() if api == "command" else deploy_and_wait(clients, again, None, keeps_cloud=False)
    assert left(cloud) == ALL
    assert [one.endpoint for one in served()] == [NAME]
