"""All services except S3, by the names with which their requests are signed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.account import AccountFile, matches
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.principals import Principals
from smdp_launch.localcloud.protocol.requests import Action, Parameters
from smdp_launch.localcloud.services.ec2 import NetworkService
from smdp_launch.localcloud.services.ecr import RegistryService
from smdp_launch.localcloud.services.filesystems import LustreService, NfsService
from smdp_launch.localcloud.services.identity import RoleService, TokenService
from smdp_launch.localcloud.services.logs.calls import LogService
from smdp_launch.localcloud.services.logs.metrics import MetricService
from smdp_launch.localcloud.services.quotas import QuotaService
from smdp_launch.localcloud.services.registry import Registry
from smdp_launch.localcloud.services.training.calls import TrainingService
from smdp_launch.localcloud.services.training.job_store import JobStore

#: The names of services in policies, where they differ from the names in signatures.
_PREFIXES = {"monitoring": "cloudwatch"}
_DENIALS = {"ec2": ("UnauthorizedOperation", 403), "sts": ("AccessDenied", 403), "iam": ("AccessDenied", 403)}


def services(
    jobs: JobStore, registry: Registry, account: AccountFile, principals: Principals
) -> dict[str, dict[str, Action]]:
    known = {
        "sagemaker": TrainingService(jobs, account).actions(),
        "logs": LogService(jobs).actions(),
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


def _permitted(principals: Principals, service: str, name: str, call: Action) -> Action:
    """The call with a check first: it raises ServiceError where `account.yaml` denies the action to the principal."""
    action = f"{_PREFIXES.get(service, service)}:{name}"

    def permitted(parameters: Parameters) -> Mapping[str, Any]:
        principal = principals.of(caller.holder())
        if matches(action, principal.denied):
            code, status = _DENIALS.get(service, ("AccessDeniedException", 400))
            raise ServiceError(code, f"User: {principal.arn} is not authorized to perform: {action}", status)
        return call(parameters)

    return permitted
