"""Endpoints from creation to deletion: statuses, descriptions, lists, updates and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.services.cloud import is_running, processes_with
from tests.support.services.serving import Serving
from tests.support.waiting import wait_for

ARN = "arn:aws:sagemaker:us-east-1:000000000000"
TRIPLES = """
def model_fn(model_dir):
    return 3

def predict_fn(data, model):
    return {"is": [model * one for one in data]}
"""
WAITS = """
import os, time

def model_fn(model_dir):
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    return model_dir

def predict_fn(data, model):
    return data
"""


def waiting_script(serving: Serving, name: str) -> tuple[str, Any]:
    """A script that is ready once the test has created the file, and the file."""
    go = serving.cloud.state_dir / f"go-{name}"
    return WAITS.format(go=str(go)), go


def refusal(call: Any, **request: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**request)
    return str(caught.value.response["Error"]["Message"])


def test_endpoint_in_service_is_described(serving: Serving, doubling: str) -> None:
    described = serving.describe(doubling)
    assert described["EndpointArn"] == f"{ARN}:endpoint/doubling"
    assert described["EndpointConfigName"] == "doubling"
    assert described["CreationTime"] <= described["LastModifiedTime"]
    (variant,) = described["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    assert (variant["CurrentWeight"], variant["VariantName"]) == (1, "AllTraffic")
    assert variant["DeployedImages"][0]["SpecifiedImage"] == "image"


def test_waiter_of_boto3_finds_endpoint_in_service(serving: Serving, doubling: str) -> None:
    waiter = serving.sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=doubling, WaiterConfig={"MaxAttempts": 1})


def test_endpoint_is_creating_until_its_model_is_loaded(serving: Serving) -> None:
    script, go = waiting_script(serving, "creating")
    serving.start("creating", script)
    serving.await_log("creating", "serving inference.py")
    described = serving.describe("creating")
    assert described["EndpointStatus"] == "Creating"
    assert "ProductionVariants" not in described
    assert serving.error("creating")["Error"]["Message"].endswith("not found.")
    message = f'Cannot update in-progress endpoint "{ARN}:endpoint/creating".'
    assert refusal(serving.sagemaker.delete_endpoint, EndpointName="creating") == message
    update = {"EndpointName": "creating", "EndpointConfigName": "creating"}
    assert refusal(serving.sagemaker.update_endpoint, **update) == message
    assert refusal(serving.sagemaker.create_endpoint, **update) == (
        f'Cannot create already existing endpoint "{ARN}:endpoint/creating".'
    )
    go.touch()
    assert serving.wait("creating")["EndpointStatus"] == "InService"
    serving.delete("creating")


def test_unknown_configuration_is_refused(serving: Serving) -> None:
    message = refusal(serving.sagemaker.create_endpoint, EndpointName="none", EndpointConfigName="unknown")
    assert message == f'Could not find endpoint configuration "{ARN}:endpoint-config/unknown".'


def test_deleted_endpoint_leaves_its_log_and_nothing_else(serving: Serving) -> None:
    serving.deploy("deleted")
    supervisor = serving.supervisor("deleted")
    (host,) = serving.hosts("deleted")
    serving.sagemaker.delete_endpoint(EndpointName="deleted")
    assert serving.error("deleted")["Error"]["Message"].endswith("not found.")
    serving.await_removal("deleted")
    assert refusal(serving.sagemaker.describe_endpoint, EndpointName="deleted").startswith("Could not find endpoint")
    wait_for(lambda: not is_running(supervisor), "the supervisor's end")
    assert processes_with(str(serving.cloud.state_dir / "endpoints" / "deleted")) == []
    assert processes_with(f"SMDP_SERVE_ADDRESS={host['address']}") == []
    assert any("serving inference.py with 1 worker(s)" in line for line in serving.log("deleted"))
    serving.sagemaker.create_endpoint(EndpointName="deleted", EndpointConfigName="deleted")
    assert serving.wait("deleted")["EndpointStatus"] == "InService"
    serving.delete("deleted")


def test_update_replaces_hosts_once_new_ones_are_in_service(serving: Serving) -> None:
    serving.deploy("updated")
    script, go = waiting_script(serving, "updated")
    serving.create_config("updated-2", serving.create_model("updated-2", script), hosts=2)
    serving.sagemaker.update_endpoint(EndpointName="updated", EndpointConfigName="updated-2")
    described = serving.describe("updated")
    assert described["EndpointStatus"] == "Updating"
    assert described["EndpointConfigName"] == "updated"
    assert described["PendingDeploymentSummary"]["EndpointConfigName"] == "updated-2"
    assert serving.ask("updated")["is"] == [2, 4]
    go.touch()
    described = serving.wait("updated")
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "updated-2")
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 2
    assert serving.ask("updated") == [1, 2]
    serving.delete("updated")


@pytest.mark.runs
def test_update_that_fails_keeps_the_old_hosts(serving: Serving) -> None:
    serving.deploy("kept")
    (before,) = serving.hosts("kept")
    serving.create_config("kept-2", serving.create_model("kept-2", "raise ValueError('broken')"))
    serving.sagemaker.update_endpoint(EndpointName="kept", EndpointConfigName="kept-2")
    described = serving.wait("kept")
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "kept")
    assert "inference.py cannot be imported: ValueError: broken" in described["FailureReason"]
    assert serving.hosts("kept") == [before]
    assert serving.ask("kept")["is"] == [2, 4]
    serving.sagemaker.update_endpoint(EndpointName="kept", EndpointConfigName="kept")
    assert "FailureReason" not in serving.wait("kept")
    serving.delete("kept")


@pytest.mark.runs
def test_no_request_fails_during_an_update(serving: Serving) -> None:
    serving.deploy("steady")
    serving.create_config("steady-2", serving.create_model("steady-2", TRIPLES))
    serving.sagemaker.update_endpoint(EndpointName="steady", EndpointConfigName="steady-2")
    found = []
    while not found or found[-1] != 3:
        found.append(serving.ask("steady", [1])["is"][0])
    assert set(found) <= {2, 3}
    serving.wait("steady")
    assert [serving.ask("steady", [1])["is"][0] for _ in range(5)] == [3] * 5
    serving.delete("steady")


@pytest.mark.runs
def test_capacity_and_weight_change(serving: Serving) -> None:
    serving.deploy("scaled")
    wanted = {"VariantName": "AllTraffic", "DesiredInstanceCount": 2, "DesiredWeight": 5.0}
    serving.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="scaled", DesiredWeightsAndCapacities=[wanted]
    )
    (variant,) = serving.wait("scaled")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["CurrentWeight"]) == (2, 5)
    serving.sagemaker.update_endpoint(
        EndpointName="scaled", EndpointConfigName="scaled", RetainAllVariantProperties=True
    )
    (variant,) = serving.wait("scaled")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["CurrentWeight"]) == (2, 5)
    serving.delete("scaled")


@pytest.mark.runs
def test_variants_share_requests_by_weight(serving: Serving) -> None:
    models = [serving.create_model("weights-1"), serving.create_model("weights-2", TRIPLES)]
    variant = {"InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    variants = [
        {**variant, "VariantName": "Never", "ModelName": models[0], "InitialVariantWeight": 0.0},
        {**variant, "VariantName": "Always", "ModelName": models[1], "InitialVariantWeight": 2.0},
    ]
    serving.sagemaker.create_endpoint_config(EndpointConfigName="weights", ProductionVariants=variants)
    serving.sagemaker.create_endpoint(EndpointName="weights", EndpointConfigName="weights")
    assert serving.wait("weights")["EndpointStatus"] == "InService"
    assert {serving.invoke("weights")["InvokedProductionVariant"] for _ in range(5)} == {"Always"}
    named = serving.invoke("weights", TargetVariant="Never")
    assert (named["InvokedProductionVariant"], json.loads(named["Body"].read())["is"]) == ("Never", [2, 4])
    serving.delete("weights")


@pytest.mark.runs
def test_endpoint_serves_after_its_model_and_configuration_are_deleted(serving: Serving) -> None:
    serving.deploy("orphan")
    serving.sagemaker.delete_endpoint_config(EndpointConfigName="orphan")
    serving.sagemaker.delete_model(ModelName="orphan")
    assert serving.ask("orphan")["is"] == [2, 4]
    serving.delete("orphan")


def test_endpoints_are_listed_by_status(serving: Serving, doubling: str) -> None:
    listed = serving.sagemaker.list_endpoints(StatusEquals="InService", NameContains="doub")["Endpoints"]
    assert [(one["EndpointName"], one["EndpointStatus"]) for one in listed] == [(doubling, "InService")]
    assert serving.sagemaker.list_endpoints(StatusEquals="Failed", NameContains="doub")["Endpoints"] == []


def test_tags_of_endpoint_change(serving: Serving, doubling: str) -> None:
    arn = f"{ARN}:endpoint/{doubling}"
    serving.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert serving.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "a"}]


@pytest.mark.parametrize("quota", ["ml.c5.large", "ml.c5.large for endpoint usage"])
def test_quota_of_the_account_limits_instances(serving: Serving, quota: str) -> None:
    account, name = serving.cloud.state_dir / "account.yaml", f"quota-{len(quota)}"
    account.write_text(f"quotas: {{{quota}: 1, ml.c5.large for training job usage: 9}}\n")
    try:
        serving.create_config(name, serving.create_model(name), hosts=2, InstanceType="ml.c5.large")
        message = refusal(serving.sagemaker.create_endpoint, EndpointName=name, EndpointConfigName=name)
    finally:
        account.unlink()
    assert message.startswith(
        "The account-level service limit 'ml.c5.large for endpoint usage' is 1 Instances, with current utilization of "
        "0 Instances and a request delta of 2 Instances."
    )
