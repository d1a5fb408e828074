"""The SageMaker calls about endpoints."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from smdp_launch.catalog.hosting.quotas import SERVERLESS, of_endpoints
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import endpoint_arn
from smdp_launch.localcloud.endpoint_state import Deployment
from smdp_launch.localcloud.errors import validation
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services import quotas
from smdp_launch.localcloud.services.listing import Entry, listed
from smdp_launch.localcloud.services.serving.configurations import MAX_HOSTS
from smdp_launch.localcloud.services.serving.endpoint_store import EndpointStore, summary_of
from smdp_launch.localcloud.services.serving.models import unsupported
from smdp_launch.localcloud.services.serving.resources import Resources
from smdp_launch.localcloud.services.tags import check_tags, of_request

_ASYNC = "AsyncInferenceConfig"
_RETAINED = {"DesiredInstanceCount": "InitialInstanceCount", "DesiredWeight": "InitialVariantWeight"}

Variants = Sequence[Mapping[str, Any]]


class EndpointService:
    def __init__(
        self, endpoints: EndpointStore, configurations: Resources, models: Resources, account: AccountFile
    ) -> None:
        self._endpoints = endpoints
        self._configurations = configurations
        self._models = models
        self._account = account
        self._admission = threading.Lock()  # held from the check of the quota until the endpoint has its hosts

    def actions(self) -> dict[str, Action]:
        one = (self.CreateEndpoint, self.DescribeEndpoint, self.UpdateEndpoint, self.DeleteEndpoint)
        return checked("sagemaker", *one, self.UpdateEndpointWeightsAndCapacities, self.ListEndpoints)

    def CreateEndpoint(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_tags(request.get("Tags", []))
        name = request["EndpointName"]
        deployment = self._deployment(request)
        with self._admission:
            existing = self._endpoints.existing(name)
            if existing is not None:
                raise self._endpoints.taken(existing)
            self._admit(deployment.variants, ())
            self._endpoints.create(name, deployment, of_request(request))
        return {"EndpointArn": endpoint_arn(name, caller.region())}

    def DescribeEndpoint(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._endpoints.find(request["EndpointName"])
        state = self._endpoints.state(folder)
        deployment = self._endpoints.deployment(folder)
        answer: dict[str, Any] = {
            **_identity(folder),
            "EndpointConfigName": state.config,
            "EndpointStatus": state.status,
            "CreationTime": state.created,
            "LastModifiedTime": state.modified,
        }
        if state.variants:
            answer["ProductionVariants"] = [summary_of(one) for one in state.variants]
        if state.asynchronous:
            answer[_ASYNC] = state.asynchronous
        if state.failure:
            answer["FailureReason"] = state.failure
        if deployment.deployed:
            answer["LastDeploymentConfig"] = deployment.deployed
        if state.status == "Updating":
            pending = [{"VariantName": one["VariantName"]} for one in deployment.variants]
            answer["PendingDeploymentSummary"] = {
                "EndpointConfigName": deployment.config,
                "ProductionVariants": pending,
            }
        return answer

    def ListEndpoints(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        entries = []
        for folder, state, _ in self._endpoints.all():
            times = {"CreationTime": state.created, "LastModifiedTime": state.modified}
            summary = {**_identity(folder), **times, "EndpointStatus": state.status}
            entries.append(Entry(folder.name, state.created, summary, state.modified, state.status))
        page, following = listed(entries, request)
        return {"Endpoints": page, **following}

    def UpdateEndpoint(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._endpoints.find(request["EndpointName"])
        deployment = self._deployment(request)
        if request.get("RetainAllVariantProperties"):
            excluded = {one["VariantPropertyType"] for one in request.get("ExcludeRetainedVariantProperties", [])}
            _retain(deployment, self._endpoints.deployment(folder), excluded)
        self._update(folder, deployment)
        return {"EndpointArn": endpoint_arn(folder.name, caller.region())}

    def UpdateEndpointWeightsAndCapacities(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._endpoints.find(request["EndpointName"])
        deployment = self._endpoints.deployment(folder)
        variants = {one["VariantName"]: one for one in deployment.variants}
        for wanted in request["DesiredWeightsAndCapacities"]:
            variant = variants.get(wanted["VariantName"])
            if variant is None:
                raise validation(f"Variant {wanted['VariantName']} is not a variant of endpoint {folder.name}.")
            if "ServerlessUpdateConfig" in wanted or wanted.get("DesiredInstanceCount") == 0:
                raise unsupported("ServerlessUpdateConfig, or a variant without instances")
            for name, field in _RETAINED.items():
                if name in wanted:
                    variant[field] = wanted[name]
        self._update(folder, deployment)
        return {"EndpointArn": endpoint_arn(folder.name, caller.region())}

    def DeleteEndpoint(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        self._endpoints.delete(self._endpoints.find(request["EndpointName"]))
        return {}

    def _deployment(self, request: Parameters) -> Deployment:
        """With copies of the configuration and its models. Raises ServiceError for those that do not exist."""
        found = self._configurations.get(request["EndpointConfigName"])
        variants = [
            {**one, "Model": self._models.get(one["ModelName"]).request} for one in found.request["ProductionVariants"]
        ]
        fields = {name: found.request[name] for name in (_ASYNC,) if name in found.request}
        return Deployment(1, found.name, variants, fields, request.get("DeploymentConfig"))

    def _update(self, folder: EndpointFolder, deployment: Deployment) -> None:
        with self._admission:
            self._admit(deployment.variants, self._endpoints.deployment(folder).variants)
            self._endpoints.update(folder, deployment)

    def _admit(self, wanted: Variants, replaced: Variants) -> None:
        """Raises ServiceError where the variants exceed the account's quota or an endpoint's number of hosts."""
        if sum(int(one.get("InitialInstanceCount", 0)) for one in wanted) > MAX_HOSTS:
            raise unsupported(f"more than {MAX_HOSTS} hosts of an endpoint")
        used: dict[str, int] = {}
        for _, state, deployment in self._endpoints.all():
            for name, count in _counts(deployment.variants if state.status != "Failed" else ()).items():
                used[name] = used.get(name, 0) + count
        freed = _counts(replaced)
        for name, count in _counts(wanted).items():
            quota, current = self._account.read().quota_of(name), used.get(name, 0)
            requested = count - freed.get(name, 0)
            if current + requested > quota:
                unit = "Instances" if name != SERVERLESS else "None"
                raise quotas.refusal(name, quota=quota, used=current, requested=requested, unit=unit)


def _identity(folder: EndpointFolder) -> dict[str, str]:
    return {"EndpointName": folder.name, "EndpointArn": endpoint_arn(folder.name, caller.region())}


def _counts(variants: Variants) -> dict[str, int]:
    """What the variants need of each quota: instances of each type, and requests at a time of serverless variants."""
    found: dict[str, int] = {}
    for one in variants:
        name, count = SERVERLESS, one.get("ServerlessConfig", {}).get("MaxConcurrency", 0)
        if "InstanceType" in one:
            name, count = of_endpoints(one["InstanceType"]), one["InitialInstanceCount"]
        found[name] = found.get(name, 0) + int(count)
    return found


def _retain(deployment: Deployment, current: Deployment, excluded: set[str]) -> None:
    """Keep the number of instances and the weight of each variant that stays."""
    before = {one["VariantName"]: one for one in current.variants}
    for variant in deployment.variants:
        for name, field in _RETAINED.items():
            old = before.get(variant["VariantName"], {})
            if name not in excluded and field in old:
                variant[field] = old[field]
