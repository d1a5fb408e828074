"""Models and endpoint configurations: creation, descriptions, lists, tags, deletion and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.services.cloud import client_of
from tests.support.services.serving import ROLE, Serving

ARN = "arn:aws:sagemaker:us-east-1:000000000000"


def refusal(call: Any, **request: Any) -> str:
    """The message of a call that must be refused, which has the code of most of the service's refusals."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationException"
    return str(error["Message"])


def test_model_is_described_as_it_was_created(serving: Serving) -> None:
    uri = serving.put_model("described")
    container = {"Image": "image", "ModelDataUrl": uri, "Environment": {"A": "b"}}
    answer = serving.sagemaker.create_model(ModelName="described", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    assert answer["ModelArn"] == f"{ARN}:model/described"
    described = serving.sagemaker.describe_model(ModelName="described")
    assert described["PrimaryContainer"] == container
    assert described["ExecutionRoleArn"] == ROLE
    assert described["ModelArn"] == answer["ModelArn"]
    assert described["EnableNetworkIsolation"] is False


def test_configuration_is_described_as_it_was_created(serving: Serving) -> None:
    serving.create_config("configured", serving.create_model("configured"), hosts=2)
    described = serving.sagemaker.describe_endpoint_config(EndpointConfigName="configured")
    assert described["EndpointConfigArn"] == f"{ARN}:endpoint-config/configured"
    (variant,) = described["ProductionVariants"]
    assert (variant["ModelName"], variant["InitialInstanceCount"]) == ("configured", 2)
    assert variant["InitialVariantWeight"] == 1


@pytest.mark.parametrize("kind", ["model", "endpoint configuration", "endpoint"])
def test_unknown_resource_is_named(serving: Serving, kind: str) -> None:
    calls = {
        "model": ("Model", [serving.sagemaker.describe_model, serving.sagemaker.delete_model]),
        "endpoint configuration": (
            "EndpointConfig",
            [serving.sagemaker.describe_endpoint_config, serving.sagemaker.delete_endpoint_config],
        ),
        "endpoint": ("Endpoint", [serving.sagemaker.describe_endpoint, serving.sagemaker.delete_endpoint]),
    }
    field, refused = calls[kind]
    for call in refused:
        arn = f"{ARN}:{kind.replace(' configuration', '-config')}/unknown"
        assert refusal(call, **{f"{field}Name": "unknown"}) == f'Could not find {kind} "{arn}".'


def test_taken_name_is_refused(serving: Serving) -> None:
    serving.create_config("taken", serving.create_model("taken"))
    container = {"Image": "image"}
    message = refusal(
        serving.sagemaker.create_model, ModelName="taken", PrimaryContainer=container, ExecutionRoleArn=ROLE
    )
    assert message == f'Cannot create already existing model "{ARN}:model/taken".'
    with pytest.raises(ClientError, match='Cannot create already existing endpoint configuration "'):
        serving.create_config("taken", "taken")


def test_name_is_free_in_another_region_and_after_deletion(serving: Serving) -> None:
    elsewhere = client_of(serving.cloud.endpoint, "sagemaker", region_name="eu-west-1")
    for client in (serving.sagemaker, elsewhere):
        client.create_model(ModelName="free", PrimaryContainer={"Image": "image"}, ExecutionRoleArn=ROLE)
    serving.sagemaker.delete_model(ModelName="free")
    assert elsewhere.describe_model(ModelName="free")["ModelArn"].startswith("arn:aws:sagemaker:eu-west-1:")
    assert "Could not find model" in refusal(serving.sagemaker.describe_model, ModelName="free")
    serving.sagemaker.create_model(ModelName="free", PrimaryContainer={"Image": "image"}, ExecutionRoleArn=ROLE)


def test_lists_have_filters_orders_and_pages(serving: Serving) -> None:
    for number in range(12):
        serving.sagemaker.create_model(
            ModelName=f"listed-{number}", PrimaryContainer={"Image": "i"}, ExecutionRoleArn=ROLE
        )
    pages = serving.sagemaker.get_paginator("list_models").paginate(
        NameContains="LISTED", SortBy="CreationTime", SortOrder="Ascending", PaginationConfig={"PageSize": 5}
    )
    sizes, names = [], []
    for page in pages:
        sizes.append(len(page["Models"]))
        names += [one["ModelName"] for one in page["Models"]]
    assert (sizes, names) == ([5, 5, 2], [f"listed-{number}" for number in range(12)])
    newest = serving.sagemaker.list_models(NameContains="listed")["Models"]
    assert len(newest) == 10
    assert newest[0]["ModelName"] == "listed-11"
    third = serving.sagemaker.describe_model(ModelName="listed-3")["CreationTime"]
    before = serving.sagemaker.list_models(NameContains="listed", CreationTimeBefore=third, SortBy="Name")["Models"]
    assert {one["ModelName"] for one in before} <= {"listed-0", "listed-1", "listed-2"}
    assert "NextToken" in refusal(serving.sagemaker.list_models, NextToken="x")


def test_configurations_are_listed(serving: Serving) -> None:
    serving.create_config("in-list", serving.create_model("in-list"))
    listed = serving.sagemaker.list_endpoint_configs(NameContains="in-list")["EndpointConfigs"]
    assert [one["EndpointConfigArn"] for one in listed] == [f"{ARN}:endpoint-config/in-list"]


def test_tags_of_model_and_configuration_change(serving: Serving) -> None:
    serving.sagemaker.create_model(
        ModelName="tagged",
        PrimaryContainer={"Image": "i"},
        ExecutionRoleArn=ROLE,
        Tags=[{"Key": "team", "Value": "a"}, {"Key": "old", "Value": "x"}],
    )
    arn = f"{ARN}:model/tagged"
    serving.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "b"}])
    serving.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["old"])
    assert serving.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "b"}]
    assert "Could not find model" in refusal(serving.sagemaker.list_tags, ResourceArn=f"{ARN}:model/../tagged")
    assert refusal(serving.sagemaker.list_tags, ResourceArn=f"{ARN}:pipeline/x") == "Requested resource not found."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ModelDataUrl": "s3://bucket/no/model.tar.gz"}, "Could not find model data at s3://bucket/no/model.tar.gz."),
        ({"ModelDataUrl": "s3://../model.tar.gz"}, "Could not find model data at s3://../model.tar.gz."),
        ({"Image": None}, "A container definition must have an Image."),
        ({"Mode": "MultiModel"}, "The local cloud does not support Mode MultiModel of a container."),
        ({"ModelPackageName": "mine"}, "The local cloud does not support ModelPackageName of a container."),
    ],
)
def test_container_that_cannot_be_served_is_refused(serving: Serving, changes: dict[str, Any], message: str) -> None:
    container = {name: value for name, value in {"Image": "image", **changes}.items() if value is not None}
    request = {"ModelName": "refused", "PrimaryContainer": container, "ExecutionRoleArn": ROLE}
    assert refusal(serving.sagemaker.create_model, **request) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ModelName": "unknown"}, f'Could not find model "{ARN}:model/unknown".'),
        (
            {"InstanceType": None},
            "1 validation error detected: Value null at 'productionVariants.1.member.instanceType' failed to satisfy "
            "constraint: Member must not be null",
        ),
        (
            {"InitialInstanceCount": 0},
            "1 validation error detected: Value '0' at 'productionVariants.1.member.initialInstanceCount' failed to "
            "satisfy constraint: Member must have value greater than or equal to 1",
        ),
        ({"InitialInstanceCount": 128}, "The local cloud does not support more than 127 hosts of an endpoint."),
        (
            {"CoreDumpConfig": {"DestinationS3Uri": "s3://b/c"}},
            "The local cloud does not support CoreDumpConfig of a production variant.",
        ),
    ],
)
def test_variant_that_cannot_be_served_is_refused(serving: Serving, changes: dict[str, Any], message: str) -> None:
    variant = {"VariantName": "A", "ModelName": "unknown", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    variants = [{name: value for name, value in {**variant, **changes}.items() if value is not None}]
    config = Config(parameter_validation=False, proxies={}, retries={"total_max_attempts": 1})
    call = client_of(serving.cloud.endpoint, "sagemaker", config=config).create_endpoint_config
    assert refusal(call, EndpointConfigName="refused", ProductionVariants=variants) == message


def test_variants_with_the_same_name_are_refused(serving: Serving) -> None:
    model = serving.create_model("twice")
    variant = {"VariantName": "A", "ModelName": model, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    request = {"EndpointConfigName": "twice", "ProductionVariants": [variant, variant]}
    assert refusal(serving.sagemaker.create_endpoint_config, **request).startswith("Production variant names must be")


def test_role_that_the_account_lacks_is_refused(serving: Serving) -> None:
    account = serving.cloud.state_dir / "account.yaml"
    account.write_text("roles: {other: {}}\n")
    try:
        request = {"ModelName": "role", "PrimaryContainer": {"Image": "i"}, "ExecutionRoleArn": ROLE}
        assert refusal(serving.sagemaker.create_model, **request).startswith(f"Could not assume role {ROLE}.")
    finally:
        account.unlink()
