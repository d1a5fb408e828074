"""Service Quotas: what the account's jobs and endpoints may have at once, such as instances of each type."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from smdp_launch.catalog.hosting.quotas import SERVERLESS, of_endpoints, of_training, of_transforms
from smdp_launch.catalog.instances import instances
from smdp_launch.catalog.limits import endpoint_types, transform_types
from smdp_launch.localcloud.account import Account, AccountFile
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.caller import region
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services.paging import numbered_page

_SERVICE = "sagemaker"
_PAGE = 100  # as the service
_LONGEST_RUN = "Longest run time for a training job"
_LONGEST_RUN_CODE = "L-33A961FD"  # the service's own, as the next one
_SERVERLESS_CODE = "L-96300102"
_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+")
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


def refusal(name: str, *, quota: int, used: int, requested: int, unit: str = "Instances") -> ServiceError:
    """The error, with the service's message, for a request of more than the quota with this name allows."""
    return ServiceError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{name}' is {quota} {unit}, with current utilization of {used} {unit} and a "
        f"request delta of {requested} {unit}. {_INCREASE}",
    )


def too_long(requested: int, limit: int) -> ServiceError:
    """The error for a job whose maximum runtime, in seconds, is above the account's quota."""
    return refusal(_LONGEST_RUN, quota=limit, used=0, requested=requested, unit="Seconds")


def _require_service(request: Parameters) -> None:
    if request["ServiceCode"] != _SERVICE:
        raise ServiceError("NoSuchResourceException", "The local cloud has only the quotas of sagemaker.")


def _quotas(account: Account) -> list[dict[str, Any]]:
    own = [one for one in account.quotas if _TYPE.fullmatch(one)]
    types = dict.fromkeys([*(one.name for one in instances()), *own])
    names = [of_training(one, spot=spot) for one in types for spot in (False, True)]
    names += [of_endpoints(one) for one in sorted(endpoint_types() | {*own})]
    names += [of_transforms(one) for one in sorted(transform_types() | {*own})]
    found = [_quota(one, _code(one), account.quota_of(one), "None") for one in names]
    return [
        *found,
        _quota(SERVERLESS, _SERVERLESS_CODE, account.quota_of(SERVERLESS), "None"),
        _quota(_LONGEST_RUN, _LONGEST_RUN_CODE, account.longest_run, "Seconds"),
    ]


def _code(quota: str) -> str:
    return f"L-{hashlib.sha256(quota.encode()).hexdigest()[:8].upper()}"


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
