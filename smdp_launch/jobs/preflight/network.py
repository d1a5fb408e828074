"""Checks of the job's subnets and security groups: that they exist, and let its traffic through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smdp_launch.catalog.instances import instance
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of
from smdp_launch.jobs.preflight.ports import EVERYTHING, Groups, closed
from smdp_launch.rules.base.facts import Finding

#: TCP ports of Lustre, as Amazon's documentation of FSx demands them, and of NFS.
_LUSTRE = ((988, 988), (1018, 1023))
_NFS = ((2049, 2049),)
_SUBNETS, _GROUPS = ("network", "subnets"), ("network", "security_groups")


def network(account: Account) -> Iterator[Finding | str]:
    from botocore.exceptions import ClientError

    try:
        subnets, groups = _subnets(account), _groups(account, _wanted(account, "SecurityGroupIds"))
    except ClientError as error:
        code, told = code_of(error), str(error.response["Error"].get("Message", ""))
        if not code.endswith(".NotFound"):
            raise
        at = _SUBNETS if code.startswith("InvalidSubnet") else _GROUPS
        yield Finding(at, told, f"give ids of {account.plan.spec.region} and of your account")
        return
    vpcs = {str(one["VpcId"]) for one in [*subnets, *groups.values()]}
    if len(vpcs) > 1:
        yield Finding(
            _GROUPS, f"subnets and groups are of several VPCs: {', '.join(sorted(vpcs))}", "give those of one"
        )
    hosts, free = account.plan.hosts, sum(int(one["AvailableIpAddressCount"]) for one in subnets)
    if free < hosts:
        help_ = "give larger or more subnets; each host takes at least one address"
        yield Finding(_SUBNETS, f"{hosts} hosts need addresses and {free} are free", help_)
    yield f"{', '.join(sorted(vpcs))}, {free} free addresses"


def hosts_together(account: Account) -> Iterator[Finding | str]:
    groups = _groups(account, _wanted(account, "SecurityGroupIds"))
    if account.plan.hosts == 1:
        raise NotChecked("one host alone")
    known = instance(account.plan.spec.compute.instance_type)
    efa = known is not None and known.efa_interfaces > 0
    addresses = () if efa else _addresses(account)  # EFA's rules must name the group; a range will not do
    if any(not closed(groups, [name], [name], EVERYTHING, addresses) for name in groups):
        yield f"all traffic among {', '.join(groups)}"
        return
    who = "EFA needs" if efa else "the hosts need"
    first = next(iter(groups))
    help_ = f"let {first} allow all traffic from itself and to itself (protocol -1, peer {first})"
    yield Finding(_GROUPS, f"{who} a group that lets its members talk to each other, and none does", help_)


def lustre(account: Account) -> Iterator[Finding | str]:
    channels = {name: one for name, one in account.plan.spec.channels.items() if isinstance(one, FsxChannel)}
    if not channels:
        raise NotChecked("no channel from FSx")
    for name, channel in channels.items():
        found = account.service("fsx").describe_file_systems(FileSystemIds=[channel.fsx])["FileSystems"][0]
        known = account.service("ec2").describe_network_interfaces(NetworkInterfaceIds=found["NetworkInterfaceIds"])
        behind = {group["GroupId"] for one in known["NetworkInterfaces"] for group in one["Groups"]}
        yield from _reachable(account, ("channels", name, "fsx"), channel.fsx, sorted(behind), _LUSTRE)


def nfs(account: Account) -> Iterator[Finding | str]:
    channels = {name: one for name, one in account.plan.spec.channels.items() if isinstance(one, EfsChannel)}
    if not channels:
        raise NotChecked("no channel from EFS")
    efs, zones = account.service("efs"), {str(one["AvailabilityZone"]) for one in _subnets(account)}
    for name, channel in channels.items():
        at = ("channels", name, "efs")
        targets = efs.describe_mount_targets(FileSystemId=channel.efs)["MountTargets"]
        missing = zones - {str(one.get("AvailabilityZoneName")) for one in targets}
        if missing:
            help_ = "make one there, or give subnets of its zones"
            yield Finding(at, f"{channel.efs} has no mount target in {', '.join(sorted(missing))}", help_)
        for one in targets:
            behind = efs.describe_mount_target_security_groups(MountTargetId=one["MountTargetId"])["SecurityGroups"]
            yield from _reachable(account, at, channel.efs, behind, _NFS)


def _reachable(
    account: Account, at: tuple[str, ...], name: str, behind: Sequence[str], ports: Sequence[tuple[int, int]]
) -> Iterator[Finding | str]:
    mine = _wanted(account, "SecurityGroupIds")
    groups = _groups(account, [*mine, *behind])
    shut = [one for one in ports if closed(groups, mine, behind, one, _addresses(account))]
    if shut:
        told = ", ".join(f"{low}-{high}" if low != high else str(low) for low, high in shut)
        help_ = f"open TCP {told} from {mine[0]}: outbound there, inbound in {', '.join(behind) or 'a group of it'}"
        yield Finding(at, f"the hosts cannot reach {name}: TCP {told} is closed", help_)
    else:
        yield f"{name} can be reached"


def s3_route(account: Account) -> Iterator[Finding | str]:
    for subnet in _subnets(account):
        name = str(subnet["SubnetId"])
        if not any(_leads_out(route) for route in _routes(account, name, str(subnet["VpcId"]))):
            region = account.plan.spec.region
            help_ = f"add a gateway endpoint of com.amazonaws.{region}.s3 to its route table, or a NAT gateway"
            yield Finding(_SUBNETS, f"no route leads from {name} to S3", help_)
        else:
            yield name


def _routes(account: Account, subnet: str, vpc: str) -> list[Mapping[str, Any]]:
    """Of the subnet's own table, else of its VPC's main one."""
    ec2 = account.service("ec2")
    own = ec2.describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])["RouteTables"]
    if not own:
        tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        own = [one for one in tables if any(each.get("Main") for each in one.get("Associations", []))]
    return [route for one in own for route in one["Routes"]]


def _leads_out(route: Mapping[str, Any]) -> bool:
    """Through a gateway endpoint (which service's is not asked: S3's is by far the most usual), or to everywhere. Not
    through an internet gateway: the hosts have no address that it would serve."""
    through = str(route.get("GatewayId", ""))
    if route.get("State") == "blackhole":
        return False
    if route.get("DestinationPrefixListId"):
        return through.startswith("vpce-")
    return route.get("DestinationCidrBlock") == "0.0.0.0/0" and not through.startswith("igw-")


def _wanted(account: Account, member: str) -> list[str]:
    config = account.plan.request.get("VpcConfig")
    if config is None:
        return _outside()
    return list(map(str, config[member]))


def _outside() -> list[str]:
    raise NotChecked("the job is in no VPC of yours")


def _subnets(account: Account) -> list[dict[str, Any]]:
    return list(account.service("ec2").describe_subnets(SubnetIds=_wanted(account, "Subnets"))["Subnets"])


def _addresses(account: Account) -> list[str]:
    return [str(one["CidrBlock"]) for one in _subnets(account)]


def _groups(account: Account, names: Sequence[str]) -> Groups:
    found = account.service("ec2").describe_security_groups(GroupIds=list(dict.fromkeys(names)))["SecurityGroups"]
    return {str(one["GroupId"]): one for one in found}
