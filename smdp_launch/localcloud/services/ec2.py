"""The EC2 calls that describe the account's network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from smdp_launch.localcloud.account import Account, AccountFile, Fsx, Rule, SecurityGroup, Subnet
from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services.filesystems import FSX_HOST, interface_of

_S3_LIST = "pl-63a5400a"  # the prefix list of S3 in us-east-1
_S3_SERVICE = f"com.amazonaws.{REGION}.s3"
_ALL = "-1"


class NetworkService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        hosts = (self.DescribeSubnets, self.DescribeSecurityGroups, self.DescribeNetworkInterfaces)
        return checked("ec2", *hosts, self.DescribeRouteTables, self.DescribeVpcEndpoints)

    def DescribeSubnets(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        account = self._account.read()
        found = _selected(account.subnets, request.get("SubnetIds"), "InvalidSubnetID.NotFound", "subnet ID")
        return {"Subnets": [_subnet(account, *one) for one in found]}

    def DescribeSecurityGroups(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account = self._account.read()
        found = _selected(account.security_groups, request.get("GroupIds"), "InvalidGroup.NotFound", "security group")
        return {"SecurityGroups": [_group(account, *one) for one in found]}

    def DescribeNetworkInterfaces(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account = self._account.read()
        known = {interface_of(name): one for name, one in account.fsx.items()}
        ids = request.get("NetworkInterfaceIds")
        found = _selected(known, ids, "InvalidNetworkInterfaceID.NotFound", "networkInterface ID")
        return {"NetworkInterfaces": [_interface(account, *one) for one in found]}

    def DescribeRouteTables(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, filters = self._account.read(), _filters(request, {"association.subnet-id", "vpc-id"})
        found = [
            (name, one)
            for name, one in account.subnets.items()
            if _passes(filters, "association.subnet-id", name) and _passes(filters, "vpc-id", one.vpc)
        ]
        return {"RouteTables": [_route_table(*one) for one in found]}

    def DescribeVpcEndpoints(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, filters = self._account.read(), _filters(request, {"vpc-id", "service-name"})
        if not _passes(filters, "service-name", _S3_SERVICE):
            return {"VpcEndpoints": []}
        vpcs = dict.fromkeys(one.vpc for one in account.subnets.values() if _passes(filters, "vpc-id", one.vpc))
        gateways = [one for one in vpcs if _subnets_with(account, one, s3=True)]
        interfaces = [one for one in vpcs if _subnets_with(account, one, s3="interface")]
        return {
            "VpcEndpoints": [
                *(_gateway(account, one) for one in gateways),
                *(_private(account, one) for one in interfaces),
            ]
        }


def _selected(known: Mapping[str, Any], ids: Iterable[str] | None, code: str, kind: str) -> list[tuple[str, Any]]:
    """The resources with these ids, or all without ids. Raises ServiceError for an unknown id."""
    names = list(ids or known)
    missing = [name for name in names if name not in known]
    if missing:
        raise ServiceError(code, f"The {kind} '{missing[0]}' does not exist")
    return [(name, known[name]) for name in names]


def _filters(request: Parameters, known: set[str]) -> dict[str, list[str]]:
    filters = {one.get("Name", ""): one.get("Values", []) for one in request.get("Filters", [])}
    unknown = sorted(filters.keys() - known)
    if unknown:
        raise ServiceError("InvalidParameterValue", f"The filter '{unknown[0]}' is invalid")
    return filters


def _passes(filters: Mapping[str, list[str]], name: str, value: str) -> bool:
    return name not in filters or value in filters[name]


def _subnet(account: Account, name: str, subnet: Subnet) -> dict[str, Any]:
    return {
        "SubnetId": name,
        "VpcId": subnet.vpc,
        "AvailabilityZone": subnet.zone,
        "AvailableIpAddressCount": subnet.addresses,
        "CidrBlock": f"{account.address_in(name, 0)}/24",
        "OwnerId": ACCOUNT,
        "State": "available",
        "SubnetArn": f"arn:aws:ec2:{REGION}:{ACCOUNT}:subnet/{name}",
    }


def _group(account: Account, name: str, group: SecurityGroup) -> dict[str, Any]:
    return {
        "GroupId": name,
        "GroupName": name,
        "Description": name,
        "VpcId": group.vpc,
        "OwnerId": ACCOUNT,
        "IpPermissions": [_permission(account, one) for one in group.inbound],
        "IpPermissionsEgress": [_permission(account, one) for one in group.outbound],
    }


def _permission(account: Account, rule: Rule) -> dict[str, Any]:
    if rule.peer.startswith("sg-"):
        peer: dict[str, Any] = {"UserIdGroupPairs": [{"GroupId": rule.peer, "UserId": ACCOUNT}]}
    else:
        peer = {"IpRanges": [{"CidrIp": rule.peer}]}
    if rule.ports == "all":
        return {"IpProtocol": _ALL, **peer}
    first, _, last = rule.ports.partition("-")
    return {"IpProtocol": "tcp", "FromPort": int(first), "ToPort": int(last or first), **peer}


def _interface(account: Account, name: str, lustre: Fsx) -> dict[str, Any]:
    groups = [{"GroupId": one, "GroupName": one} for one in lustre.groups]
    subnet = lustre.subnets[0]
    address = account.address_in(subnet, FSX_HOST)
    return {
        "NetworkInterfaceId": name,
        "SubnetId": subnet,
        "Groups": groups,
        "Status": "in-use",
        "PrivateIpAddress": address,
        "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": address}],
    }


def _route_table(name: str, subnet: Subnet) -> dict[str, Any]:
    table = _table_of(name)
    routes = [{"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}]
    if subnet.s3 is True:
        routes.append({"DestinationPrefixListId": _S3_LIST, "GatewayId": _endpoint_of(subnet.vpc), "State": "active"})
    return {
        "RouteTableId": table,
        "VpcId": subnet.vpc,
        "Routes": routes,
        "Associations": [{"RouteTableId": table, "SubnetId": name, "Main": False}],
    }


def _subnets_with(account: Account, vpc: str, s3: object) -> list[str]:
    return [name for name, one in account.subnets.items() if one.vpc == vpc and one.s3 == s3]


def _gateway(account: Account, vpc: str) -> dict[str, Any]:
    return {
        "VpcEndpointId": _endpoint_of(vpc),
        "VpcEndpointType": "Gateway",
        "VpcId": vpc,
        "ServiceName": _S3_SERVICE,
        "State": "available",
        "RouteTableIds": list(map(_table_of, _subnets_with(account, vpc, s3=True))),
    }


def _private(account: Account, vpc: str) -> dict[str, Any]:
    """The interface endpoint of the VPC, with private DNS in the whole VPC."""
    return {
        "VpcEndpointId": f"{_endpoint_of(vpc)}-interface",
        "VpcEndpointType": "Interface",
        "VpcId": vpc,
        "ServiceName": _S3_SERVICE,
        "State": "available",
        "RouteTableIds": [],
        "SubnetIds": _subnets_with(account, vpc, s3="interface"),
        "PrivateDnsEnabled": True,
        "DnsOptions": {"DnsRecordIpType": "ipv4", "PrivateDnsOnlyForInboundResolverEndpoint": False},
    }


def _table_of(subnet: str) -> str:
    return f"rtb-{subnet.removeprefix('subnet-')}"


def _endpoint_of(vpc: str) -> str:
    return f"vpce-{vpc.removeprefix('vpc-')}"
