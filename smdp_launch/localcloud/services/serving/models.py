"""The SageMaker calls about models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud import objects
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import model_arn
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked, split_uri
from smdp_launch.localcloud.services.listing import Entry, listed
from smdp_launch.localcloud.services.serving.resources import Resources
from smdp_launch.localcloud.services.tags import check_tags
from smdp_launch.localcloud.services.training.request_checks import check_network, check_role

_NOT_SUPPORTED = ("ModelPackageName", "InferenceSpecificationName", "MultiModelConfig", "AdditionalModelDataSources")


class ModelService:
    def __init__(self, models: Resources, account: AccountFile, state: StateFolder) -> None:
        self._models = models
        self._account = account
        self._state = state

    def actions(self) -> dict[str, Action]:
        return checked("sagemaker", self.CreateModel, self.DescribeModel, self.ListModels, self.DeleteModel)

    def CreateModel(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_tags(request.get("Tags", []))
        _check_containers(request)
        self._check_data(container(request))
        account = self._account.read()
        if "ExecutionRoleArn" in request:
            check_role(request["ExecutionRoleArn"], account)
        if "VpcConfig" in request:
            check_network(request["VpcConfig"], account)
        return {"ModelArn": self._models.create(request["ModelName"], request)}

    def DescribeModel(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        found = self._models.get(request["ModelName"])
        arn = model_arn(found.name, caller.region())
        return {"EnableNetworkIsolation": False, **found.request, "ModelArn": arn, "CreationTime": found.created}

    def ListModels(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        entries = (Entry(one.name, one.created, _summary(one.name, one.created)) for one in self._models.all())
        page, following = listed(entries, request)
        return {"Models": page, **following}

    def DeleteModel(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        """As on AWS, endpoints that serve the model keep their copy."""
        self._models.delete(request["ModelName"])
        return {}

    def _check_data(self, one: Mapping[str, Any]) -> None:
        """Raises ServiceError unless the archive exists. A prefix is listed when an endpoint is created."""
        uri = one.get("ModelDataUrl") or ""
        source = one.get("ModelDataSource", {}).get("S3DataSource", {})
        if source.get("S3DataType") == "S3Object":
            uri = source["S3Uri"]
        if not uri:
            return
        bucket, key = split_uri(uri, "ModelDataUrl")
        if not objects.BUCKET_NAME.fullmatch(bucket) or objects.find(self._state.objects / bucket, key) is None:
            raise validation(f"Could not find model data at {uri}.")


def container(request: Mapping[str, Any]) -> dict[str, Any]:
    """The model's only container."""
    found: dict[str, Any] = request["PrimaryContainer"] if "PrimaryContainer" in request else request["Containers"][0]
    return found


def _check_containers(request: Mapping[str, Any]) -> None:
    containers = request.get("Containers", [])
    if bool(containers) == ("PrimaryContainer" in request):
        raise validation("Specify either PrimaryContainer or Containers.")
    if len(containers) > 1:
        raise unsupported("several containers in a model (Containers)")
    one = container(request)
    for name in _NOT_SUPPORTED:
        if name in one:
            raise unsupported(f"{name} of a container")
    if one.get("Mode", "SingleModel") != "SingleModel":
        raise unsupported("Mode MultiModel of a container")
    if not one.get("Image"):
        raise validation("A container definition must have an Image.")
    if "ModelDataUrl" in one and "ModelDataSource" in one:
        raise validation("ModelDataUrl and ModelDataSource of a container exclude each other.")
    source = one.get("ModelDataSource", {}).get("S3DataSource", {})
    if source and (source["S3DataType"] == "S3Object") != (source["CompressionType"] == "Gzip"):
        raise unsupported("this ModelDataSource; only S3Object with Gzip, and S3Prefix with None")


def unsupported(what: str) -> ServiceError:
    return validation(f"The local cloud does not support {what}.")


def _summary(name: str, created: float) -> dict[str, Any]:
    return {"ModelName": name, "ModelArn": model_arn(name, caller.region()), "CreationTime": created}
