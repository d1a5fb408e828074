"""The SageMaker calls about endpoint configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.arns import endpoint_config_arn
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.constraints import absent, report
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked, split_uri
from smdp_launch.localcloud.services.listing import Entry, listed
from smdp_launch.localcloud.services.serving.models import unsupported
from smdp_launch.localcloud.services.serving.resources import Resources
from smdp_launch.localcloud.services.tags import check_tags
from smdp_launch.localcloud.services.training.request_checks import is_not_offered

#: Hosts of one endpoint: half of the addresses 127.A.B.1 to 127.A.B.254. An update starts new hosts beside old ones.
MAX_HOSTS = 127
_NOT_SUPPORTED = ("ShadowProductionVariants", "ExplainerConfig")
_NOT_IN_VARIANTS = ("InstancePools", "CapacityReservationConfig", "CoreDumpConfig", "AcceleratorPartitionLayouts")


class ConfigurationService:
    def __init__(self, configurations: Resources, models: Resources) -> None:
        self._configurations = configurations
        self._models = models

    def actions(self) -> dict[str, Action]:
        made = (self.CreateEndpointConfig, self.DescribeEndpointConfig)
        return checked("sagemaker", *made, self.ListEndpointConfigs, self.DeleteEndpointConfig)

    def CreateEndpointConfig(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_tags(request.get("Tags", []))
        _check_variants(request)
        for variant in request["ProductionVariants"]:
            self._models.get(variant["ModelName"])
        return {"EndpointConfigArn": self._configurations.create(request["EndpointConfigName"], request)}

    def DescribeEndpointConfig(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        found = self._configurations.get(request["EndpointConfigName"])
        arn = endpoint_config_arn(found.name, caller.region())
        variants = [{"InitialVariantWeight": 1.0, **one} for one in found.request["ProductionVariants"]]
        own = {"EndpointConfigArn": arn, "CreationTime": found.created, "ProductionVariants": variants}
        return {"EnableNetworkIsolation": False, **found.request, **own}

    def ListEndpointConfigs(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        entries = (Entry(one.name, one.created, _summary(one.name, one.created)) for one in self._configurations.all())
        page, following = listed(entries, request)
        return {"EndpointConfigs": page, **following}

    def DeleteEndpointConfig(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        """As on AWS, endpoints keep their copy."""
        self._configurations.delete(request["EndpointConfigName"])
        return {}


def _check_variants(request: Parameters) -> None:
    for name in _NOT_SUPPORTED:
        if name in request:
            raise unsupported(f"{name} of an endpoint configuration")
    variants = request["ProductionVariants"]
    _check_async(request)
    names = [one["VariantName"] for one in variants]
    for name in names:
        if names.count(name) > 1:
            raise validation(f"Production variant names must be unique; {name} is used {names.count(name)} times.")
    for number, one in enumerate(variants, 1):
        _check_variant(one, f"productionVariants.{number}.member")
    if sum(one.get("InitialInstanceCount", 0) for one in variants) > MAX_HOSTS:
        raise unsupported(f"more than {MAX_HOSTS} hosts of an endpoint")


def _check_variant(variant: Parameters, place: str) -> None:
    for name in _NOT_IN_VARIANTS:
        if name in variant:
            raise unsupported(f"{name} of a production variant")
    if "ServerlessConfig" in variant:
        _check_serverless(variant, place)
        return
    needed = {"ModelName": "modelName", "InstanceType": "instanceType", "InitialInstanceCount": "initialInstanceCount"}
    missing = [absent(f"{place}.{field}") for name, field in needed.items() if name not in variant]
    if missing:
        raise validation(report(missing))
    if is_not_offered(variant["InstanceType"], caller.region()):
        raise ServiceError(
            "ResourceLimitExceeded",
            f"The requested resource endpoint/{variant['InstanceType']} is not available in this region",
        )


def _check_async(request: Parameters) -> None:
    if "AsyncInferenceConfig" not in request:
        return
    output = request["AsyncInferenceConfig"]["OutputConfig"]
    if "S3OutputPath" not in output:
        raise validation("AsyncInferenceConfig.OutputConfig must have an S3OutputPath.")
    for name in ("S3OutputPath", "S3FailurePath"):
        if name in output:
            split_uri(output[name], f"AsyncInferenceConfig.OutputConfig.{name}")
    if any("ServerlessConfig" in one for one in request["ProductionVariants"]):
        raise validation("AsyncInferenceConfig and ServerlessConfig exclude each other.")


def _check_serverless(variant: Parameters, place: str) -> None:
    if "ModelName" not in variant:
        raise validation(report([absent(f"{place}.modelName")]))
    if "InstanceType" in variant or "InitialInstanceCount" in variant:
        raise validation("ServerlessConfig excludes InstanceType and InitialInstanceCount of a production variant.")
    serverless = variant["ServerlessConfig"]
    memory, most = serverless["MemorySizeInMB"], serverless["MaxConcurrency"]
    if memory % 1024:
        raise validation(f"MemorySizeInMB of ServerlessConfig must be a multiple of 1024, found {memory}.")
    if serverless.get("ProvisionedConcurrency", 0) > most:
        raise validation("ProvisionedConcurrency of ServerlessConfig must not be greater than MaxConcurrency.")


def _summary(name: str, created: float) -> dict[str, Any]:
    arn = endpoint_config_arn(name, caller.region())
    return {"EndpointConfigName": name, "EndpointConfigArn": arn, "CreationTime": created}
