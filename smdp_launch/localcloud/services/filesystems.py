"""The FSx and EFS calls that describe the account's file systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.account import CREATED, Account, AccountFile, Efs, Fsx
from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked

#: The last byte of the addresses of the file systems in their subnets.
FSX_HOST, _EFS_HOST = 10, 11


class LustreService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        return checked("fsx", self.DescribeFileSystems)

    def DescribeFileSystems(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        account = self._account.read()
        names = request.get("FileSystemIds") or list(account.fsx)
        for name in names:
            if name not in account.fsx:
                raise ServiceError("FileSystemNotFound", f"File system '{name}' does not exist.")
        return {"FileSystems": [_lustre(account, name, account.fsx[name]) for name in names]}


class NfsService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        calls = (self.DescribeFileSystems, self.DescribeMountTargets, self.DescribeMountTargetSecurityGroups)
        return checked("efs", *calls)

    def DescribeFileSystems(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account = self._account.read()
        return {"FileSystems": [_nfs(account, *one) for one in _known(account, request.get("FileSystemId")).items()]}

    def DescribeMountTargets(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account = self._account.read()
        if "FileSystemId" not in request:
            raise ServiceError("BadRequest", "You must specify a FileSystemId.")
        name = request["FileSystemId"]
        targets = _known(account, name)[name].targets
        return {"MountTargets": [_target(account, name, subnet) for subnet in targets]}

    def DescribeMountTargetSecurityGroups(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        wanted = request["MountTargetId"]
        for name, one in self._account.read().efs.items():
            for subnet, groups in one.targets.items():
                if _target_of(name, subnet) == wanted:
                    return {"SecurityGroups": list(groups)}
        raise ServiceError("MountTargetNotFound", f"Mount target '{wanted}' does not exist.", 404)


def _lustre(account: Account, name: str, one: Fsx) -> dict[str, Any]:
    return {
        "FileSystemId": name,
        "FileSystemType": "LUSTRE",
        "Lifecycle": "AVAILABLE",
        "OwnerId": ACCOUNT,
        "CreationTime": CREATED,
        "SubnetIds": list(one.subnets),
        "NetworkInterfaceIds": [interface_of(name)],
        "ResourceARN": f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/{name}",
        "LustreConfiguration": {"MountName": one.mount_name},
    }


def interface_of(name: str) -> str:
    return f"eni-{name.removeprefix('fs-')}"


def _known(account: Account, name: str | None) -> dict[str, Efs]:
    if name is None:
        return account.efs
    if name not in account.efs:
        raise ServiceError("FileSystemNotFound", f"File system '{name}' does not exist.", 404)
    return {name: account.efs[name]}


def _nfs(account: Account, name: str, one: Efs) -> dict[str, Any]:
    return {
        "FileSystemId": name,
        "OwnerId": ACCOUNT,
        "CreationToken": name,
        "CreationTime": CREATED,
        "LifeCycleState": "available",
        "NumberOfMountTargets": len(one.targets),
        "SizeInBytes": {"Value": 0},
        "PerformanceMode": "generalPurpose",
        "Tags": [],
    }


def _target(account: Account, name: str, subnet: str) -> dict[str, Any]:
    found = {"MountTargetId": _target_of(name, subnet), "FileSystemId": name, "SubnetId": subnet}
    known = account.subnets.get(subnet)
    zone = {"AvailabilityZoneName": known.zone, "VpcId": known.vpc} if known is not None else {}
    address = account.address_in(subnet, _EFS_HOST)
    return {**found, "LifeCycleState": "available", "OwnerId": ACCOUNT, "IpAddress": address, **zone}


def _target_of(name: str, subnet: str) -> str:
    return f"fsmt-{name.removeprefix('fs-')}{subnet.removeprefix('subnet-')}"
