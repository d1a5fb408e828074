"""Checks of the job's subnets and security groups: they exist, and they allow the job's traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from smdp_launch.catalog.instances import instance
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of
from smdp_launch.jobs.preflight.security_groups import EVERYTHING, Groups, Peers, closed
from smdp_launch.rules.base.facts import Problem

#: TCP ports of Lustre, as Amazon's documentation of FSx requires them, and of NFS.
_LUSTRE = ((988, 988), (1018, 1023))
_NFS = ((2049, 2049),)
_SUBNETS, _GROUPS = ("network", "subnets"), ("network", "security_groups")


def network(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    try:
        subnets, groups = _subnets(account), _groups(account, _vpc_config(account, "SecurityGroupIds"))
    except ClientError as error:
        code, message = code_of(error), str(error.response["Error"].get("Message", ""))
        if not code.endswith(".NotFound"):
            raise
        at = _SUBNETS if code.startswith("InvalidSubnet") else _GROUPS
        yield Problem(at, message, f"give ids of {account.plan.spec.region} and of your account")
        return
    vpcs = {str(one["VpcId"]) for one in [*subnets, *groups.values()]}
    if len(vpcs) > 1:
        message = f"subnets and groups belong to several VPCs: {', '.join(sorted(vpcs))}"
        yield Problem(_GROUPS, message, "give subnets and groups of one VPC")
    hosts, free = account.plan.hosts, sum(int(one["AvailableIpAddressCount"]) for one in subnets)
    if free < hosts:
        help_ = "give larger or more subnets; each host needs at least one address"
        yield Problem(_SUBNETS, f"{hosts} hosts need addresses, and only {free} are free", help_)
    yield f"{', '.join(sorted(vpcs))}, {free} free addresses"


def hosts_together(account: Account) -> Iterator[Problem | str]:
    groups = _groups(account, _vpc_config(account, "SecurityGroupIds"))
    if account.plan.hosts == 1:
        raise NotChecked("the job has one host")
    known = instance(account.plan.spec.compute.instance_type)
    efa = known is not None and known.efa_interfaces > 0
    addresses = () if efa else _addresses(account)  # EFA needs rules that name the group; a range is not enough
    if any(not closed(groups, Peers([name], addresses), Peers([name], addresses), EVERYTHING) for name in groups):
        yield f"all traffic among {', '.join(groups)}"
        return
    subject = "EFA needs" if efa else "the hosts need"
    first = next(iter(groups))
    help_ = f"let {first} allow all traffic from itself and to itself (protocol -1, peer {first})"
    yield Problem(_GROUPS, f"{subject} a group that allows all traffic between its members, and there is none", help_)


def lustre(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    channels = {name: one for name, one in account.plan.spec.channels.items() if isinstance(one, FsxChannel)}
    if not channels:
        raise NotChecked("no channel from FSx")
    fsx = account.service("fsx")
    for name, channel in channels.items():
        at = ("channels", name, "fsx")
        try:
            described = fsx.describe_file_systems(FileSystemIds=[channel.fsx])["FileSystems"][0]
        except ClientError as error:
            yield _not_found(account, at, channel.fsx, error)
            continue
        ids = described["NetworkInterfaceIds"]
        interfaces = account.service("ec2").describe_network_interfaces(NetworkInterfaceIds=ids)["NetworkInterfaces"]
        groups = sorted({str(group["GroupId"]) for one in interfaces for group in one["Groups"]})
        addresses = [str(one["PrivateIpAddress"]) for one in interfaces if "PrivateIpAddress" in one]
        yield from _reachable(account, at, channel.fsx, Peers(groups, addresses or None), _LUSTRE)


def nfs(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    channels = {name: one for name, one in account.plan.spec.channels.items() if isinstance(one, EfsChannel)}
    if not channels:
        raise NotChecked("no channel from EFS")
    efs, zones = account.service("efs"), {str(one["AvailabilityZone"]) for one in _subnets(account)}
    unknown: NotChecked | None = None
    for name, channel in channels.items():
        at = ("channels", name, "efs")
        try:
            targets = efs.describe_mount_targets(FileSystemId=channel.efs)["MountTargets"]
        except ClientError as error:
            yield _not_found(account, at, channel.efs, error)
            continue
        missing = zones - {str(one.get("AvailabilityZoneName")) for one in targets}
        if missing:
            help_ = "create one there, or give subnets in its zones"
            yield Problem(at, f"{channel.efs} has no mount target in {', '.join(sorted(missing))}", help_)
        for one in targets:
            groups = efs.describe_mount_target_security_groups(MountTargetId=one["MountTargetId"])["SecurityGroups"]
            addresses = [str(one["IpAddress"])] if "IpAddress" in one else None  # it has an IPv6 address only
            try:
                yield from _reachable(account, at, channel.efs, Peers(groups, addresses), _NFS)
            except NotChecked as error:
                unknown = error  # the other targets may have problems
    if unknown is not None:
        raise unknown


def _not_found(account: Account, at: tuple[str, ...], name: str, error: Any) -> Problem:
    """The problem of a file system that does not exist. Raises any other ClientError."""
    if code_of(error) != "FileSystemNotFound":
        raise error
    region = account.plan.spec.region
    help_ = f"give the id of a file system of {region} and of your account"
    return Problem(at, f"there is no file system {name} in {region}", help_)


def _reachable(
    account: Account, at: tuple[str, ...], name: str, targets: Peers, ports: Sequence[tuple[int, int]]
) -> Iterator[Problem | str]:
    own = _vpc_config(account, "SecurityGroupIds")
    hosts, groups = Peers(own, _addresses(account)), _groups(account, [*own, *targets.groups])
    blocked = [one for one in ports if closed(groups, hosts, targets, one)]
    if blocked:
        shown = ", ".join(f"{low}-{high}" if low != high else str(low) for low, high in blocked)
        inbound = ", ".join(targets.groups) or f"a group of {name}"
        help_ = f"open TCP {shown}: outbound in {own[0]}, inbound in {inbound}"
        yield Problem(at, f"the hosts cannot reach {name}: TCP {shown} is closed", help_)
    elif any(closed(groups, hosts, replace(targets, addresses=targets.addresses or ()), one) for one in ports):
        raise NotChecked(f"{name} has no IPv4 address to compare with the address ranges of the rules")
    else:
        yield f"{name} can be reached"


def s3_route(account: Account) -> Iterator[Problem | str]:
    for subnet in _subnets(account):
        name, vpc = str(subnet["SubnetId"]), str(subnet["VpcId"])
        if any(map(_leads_to_s3, _routes(account, name, vpc))) or _has_interface_to_s3(account, vpc):
            yield name
            continue
        region = account.plan.spec.region
        help_ = f"add a gateway endpoint of com.amazonaws.{region}.s3 to its route table, or a NAT gateway"
        yield Problem(_SUBNETS, f"no route leads from {name} to S3", help_)


def _routes(account: Account, subnet: str, vpc: str) -> list[Mapping[str, Any]]:
    """The routes of the subnet's own table, or of its VPC's main table if it has none."""
    ec2 = account.service("ec2")
    own = ec2.describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])["RouteTables"]
    if not own:
        tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        own = [one for one in tables if any(each.get("Main") for each in one.get("Associations", []))]
    return [route for one in own for route in one["Routes"]]


def _leads_to_s3(route: Mapping[str, Any]) -> bool:
    """Whether the route leads through a gateway endpoint (its service is not checked: S3 is the most common), or to all
    addresses. An internet gateway does not count: the hosts have no public address."""
    through = str(route.get("GatewayId", ""))
    if route.get("State") == "blackhole":
        return False
    if route.get("DestinationPrefixListId"):
        return through.startswith("vpce-")
    return route.get("DestinationCidrBlock") == "0.0.0.0/0" and not through.startswith("igw-")


def _has_interface_to_s3(account: Account, vpc: str) -> bool:
    """Whether an interface endpoint of the VPC answers to the usual names of S3: private DNS that is not only for the
    resolvers of other networks. The security groups of the endpoint are not checked."""
    service = f"com.amazonaws.{account.plan.spec.region}.s3"
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "service-name", "Values": [service]}]
    endpoints = account.service("ec2").describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]
    return any(
        one.get("VpcEndpointType") == "Interface"
        and str(one.get("State")).lower() == "available"
        and one.get("PrivateDnsEnabled")
        and not one.get("DnsOptions", {}).get("PrivateDnsOnlyForInboundResolverEndpoint")
        for one in endpoints
    )


def _vpc_config(account: Account, field: str) -> list[str]:
    config = account.plan.request.get("VpcConfig")
    if config is None:
        raise NotChecked("the job has no VPC")
    return list(map(str, config[field]))


def _subnets(account: Account) -> list[dict[str, Any]]:
    return list(account.service("ec2").describe_subnets(SubnetIds=_vpc_config(account, "Subnets"))["Subnets"])


def _addresses(account: Account) -> list[str]:
    return [str(one["CidrBlock"]) for one in _subnets(account)]


def _groups(account: Account, names: Sequence[str]) -> Groups:
    groups = account.service("ec2").describe_security_groups(GroupIds=list(dict.fromkeys(names)))["SecurityGroups"]
    return {str(one["GroupId"]): one for one in groups}
