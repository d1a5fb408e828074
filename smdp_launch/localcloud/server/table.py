"""All services except S3, by the names with which their requests are signed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smdp_launch.localcloud.account import AccountFile, matches
from smdp_launch.localcloud.arns import endpoint_config_arn, model_arn
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.principals import Principals
from smdp_launch.localcloud.protocol.protocols import Reply
from smdp_launch.localcloud.protocol.requests import Action, Parameters
from smdp_launch.localcloud.protocol.signatures import Head
from smdp_launch.localcloud.services.ec2 import NetworkService
from smdp_launch.localcloud.services.ecr import RegistryService
from smdp_launch.localcloud.services.filesystems import LustreService, NfsService
from smdp_launch.localcloud.services.identity import RoleService, TokenService
from smdp_launch.localcloud.services.logs.calls import LogService
from smdp_launch.localcloud.services.logs.metrics import MetricService
from smdp_launch.localcloud.services.quotas import QuotaService
from smdp_launch.localcloud.services.registry import Registry
from smdp_launch.localcloud.services.serving.configurations import ConfigurationService
from smdp_launch.localcloud.services.serving.endpoint_store import EndpointStore
from smdp_launch.localcloud.services.serving.endpoints import EndpointService
from smdp_launch.localcloud.services.serving.invocations import InvocationService
from smdp_launch.localcloud.services.serving.models import ModelService
from smdp_launch.localcloud.services.serving.resources import Resources
from smdp_launch.localcloud.services.serving.transforms import TransformService
from smdp_launch.localcloud.services.tags import Tagged, TagService
from smdp_launch.localcloud.services.training.calls import TrainingService
from smdp_launch.localcloud.services.training.job_store import JobStore
from smdp_launch.localcloud.services.tuning.calls import TuningService

#: The names of services in policies, where they differ from the names in signatures.
_PREFIXES = {"monitoring": "cloudwatch"}
_DENIALS = {"ec2": ("UnauthorizedOperation", 403), "sts": ("AccessDenied", 403), "iam": ("AccessDenied", 403)}


@dataclass(frozen=True)
class Running:
    """The services with processes of their own, which the server's main thread watches."""

    jobs: JobStore
    endpoints: EndpointStore
    transforms: TransformService
    tunings: TuningService

    @property
    def jobs_active(self) -> bool:
        """Whether a job runs, for which the server has to stay. Endpoints end with the server's last client."""
        return self.jobs.active() or self.transforms.active() or self.tunings.active()

    def reap(self) -> None:
        self.jobs.reap()
        self.endpoints.reap()
        self.transforms.reap()
        self.tunings.reap()


def services(
    running: Running, registry: Registry, account: AccountFile, principals: Principals
) -> dict[str, dict[str, Action]]:
    jobs, endpoints = running.jobs, running.endpoints
    known = {
        "sagemaker": _sagemaker(running, account),
        "logs": LogService(jobs, endpoints.state_folder).actions(),
        "monitoring": MetricService(jobs).actions(),
        "ecr": RegistryService(registry, account).actions(),
        "sts": TokenService(account, principals, jobs.credentials).actions(),
        "iam": RoleService(account).actions(),
        "ec2": NetworkService(account).actions(),
        "fsx": LustreService(account).actions(),
        "elasticfilesystem": NfsService(account).actions(),
        "servicequotas": QuotaService(account).actions(),
    }
    return {
        service: {name: _permitted(principals, service, name, call) for name, call in calls.items()}
        for service, calls in known.items()
    }


def _sagemaker(running: Running, account: AccountFile) -> dict[str, Action]:
    endpoints, transforms = running.endpoints, running.transforms
    state = endpoints.state_folder
    training = TrainingService(running.jobs, account, running.tunings.tuning_job_of)
    models = Resources(state.resources / "models", "model", model_arn)
    configurations = Resources(state.resources / "endpoint-configs", "endpoint configuration", endpoint_config_arn)
    tagged: dict[str, Tagged] = {
        "training-job": training,
        "model": models,
        "endpoint-config": configurations,
        "endpoint": endpoints,
        "transform-job": transforms,
        "hyper-parameter-tuning-job": running.tunings,
    }
    return {
        **training.actions(),
        **ModelService(models, account, state).actions(),
        **ConfigurationService(configurations, models).actions(),
        **EndpointService(endpoints, configurations, models, account).actions(),
        **transforms.actions(models, account),
        **running.tunings.actions(account),
        **TagService(tagged).actions(),
    }


def invocation(endpoints: EndpointStore, principals: Principals) -> Callable[[Head, bytes], Reply]:
    """InvokeEndpoint, whose requests and answers are not JSON."""
    service = InvocationService(endpoints.state_folder)

    def permitted(head: Head, body: bytes) -> Reply:
        _require(principals, "sagemaker", "InvokeEndpoint")
        return service.answer(head, body)

    return permitted


def _permitted(principals: Principals, service: str, name: str, call: Action) -> Action:
    """The call with a check first: it raises ServiceError where `account.yaml` denies the action to the principal."""

    def permitted(parameters: Parameters) -> Mapping[str, Any]:
        _require(principals, service, name)
        return call(parameters)

    return permitted


def _require(principals: Principals, service: str, name: str) -> None:
    """Raises ServiceError where `account.yaml` denies the action to the caller."""
    action = f"{_PREFIXES.get(service, service)}:{name}"
    principal = principals.of(caller.holder())
    if matches(action, principal.denied):
        code, status = _DENIALS.get(service, ("AccessDeniedException", 400))
        raise ServiceError(code, f"User: {principal.arn} is not authorized to perform: {action}", status)
