"""Service Quotas: the number of instances of each type that the account's training jobs may have at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from smdp_launch.catalog.instances import instances
from smdp_launch.localcloud.account import Account, AccountFile
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.caller import region
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services.paging import numbered_page

_SERVICE = "sagemaker"
_PAGE = 100  # as the service
_LONGEST_RUN = "Longest run time for a training job"
_LONGEST_RUN_CODE = "L-33A961FD"  # the service's own
_INCREASE = (
    "Please use AWS Service Quotas to request an increase for this quota. If AWS Service Quotas is not available, "
    "contact AWS support to request an increase for this quota."
)


class QuotaService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        return checked("service-quotas", self.GetServiceQuota, self.ListServiceQuotas)

    def GetServiceQuota(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        _require_service(request)
        for one in _quotas(self._account.read()):
            if one["QuotaCode"] == request["QuotaCode"]:
                return {"Quota": one}
        raise ServiceError("NoSuchResourceException", "The request failed because the specified quota does not exist.")

    def ListServiceQuotas(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        _require_service(request)
        invalid = ServiceError("InvalidPaginationTokenException", "Invalid NextToken.")
        page, following = numbered_page(_quotas(self._account.read()), request, _PAGE, invalid)
        return {"Quotas": page, **following}


def name(instance_type: str, *, spot: bool = False) -> str:
    return f"{instance_type} for {'spot ' if spot else ''}training job usage"


def refusal(instance_type: str, *, quota: int, used: int, requested: int, spot: bool) -> ServiceError:
    """The error, with the service's message, for a job that needs more instances than the account may have."""
    return ServiceError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{name(instance_type, spot=spot)}' is {quota} Instances, with current "
        f"utilization of {used} Instances and a request delta of {requested} Instances. {_INCREASE}",
    )


def endpoint_refusal(instance_type: str, *, quota: int, used: int, requested: int) -> ServiceError:
    """As `refusal`, for the instances of an endpoint."""
    return ServiceError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{instance_type} for endpoint usage' is {quota} Instances, with current "
        f"utilization of {used} Instances and a request delta of {requested} Instances. {_INCREASE}",
    )


def too_long(requested: int, limit: int) -> ServiceError:
    """The error for a job whose maximum runtime, in seconds, is above the account's quota."""
    return ServiceError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{_LONGEST_RUN}' is {limit} Seconds, with current utilization of 0 Seconds "
        f"and a request delta of {requested} Seconds. {_INCREASE}",
    )


def _require_service(request: Parameters) -> None:
    if request["ServiceCode"] != _SERVICE:
        raise ServiceError("NoSuchResourceException", "The local cloud has only the quotas of sagemaker.")


def _quotas(account: Account) -> list[dict[str, Any]]:
    types = dict.fromkeys([*(one.name for one in instances()), *account.quotas])
    found = [_of_instances(account, one, spot) for one in types for spot in (False, True)]
    return [*found, _quota(_LONGEST_RUN, _LONGEST_RUN_CODE, account.longest_run, "Seconds")]


def _of_instances(account: Account, instance_type: str, spot: bool) -> dict[str, Any]:
    quota = name(instance_type, spot=spot)
    code = f"L-{hashlib.sha256(quota.encode()).hexdigest()[:8].upper()}"
    return _quota(quota, code, account.quota_of(instance_type), "None")


def _quota(quota: str, code: str, value: int, unit: str) -> dict[str, Any]:
    return {
        "ServiceCode": _SERVICE,
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region()}:{ACCOUNT}:{_SERVICE}/{code}",
        "QuotaCode": code,
        "QuotaName": quota,
        "Value": float(value),
        "Unit": unit,
        "Adjustable": True,
        "GlobalQuota": False,
    }
