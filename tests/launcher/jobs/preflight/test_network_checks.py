"""The checks of file systems and of the route to S3, against the network of an account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import smdp_launch as library
from smdp_launch.jobs.preflight import network
from smdp_launch.jobs.preflight.check import Account, Result, result_of
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import JOB, write_job

SUBNET, HOSTS, FILES = "subnet-00000000000000001", "sg-0a1b2c3d", "sg-4d5e6f70"
NET = f"network: {{subnets: [{SUBNET}], security_groups: [{HOSTS}]}}\n"
FSX, EFS = "fs-0123456789abcdef0", "fs-0fedcba9876543210"
Check = Callable[..., dict[str, Result]]


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        yield made


@pytest.fixture
def check(shared_cloud: LocalCloud, tmp_path: Path) -> Check:
    """The results by code, for a job with ``channel`` in that account."""

    def on_account(account: str, channel: str = "") -> dict[str, Result]:
        job = JOB.replace("channels:\n", f"channels:\n  more: {channel}\n") if channel else JOB
        (shared_cloud.state / "account.yaml").write_text(account)
        plan = library.plan(write_job(tmp_path, job + NET))
        return {one.code: one for one in library.preflight(plan).results}

    return on_account


CHANNELS = {
    "SMDP819": f"{{fsx: {FSX}, path: /fsx/data}}",
    "SMDP820": f"{{efs: {EFS}, path: /data}}",
}


@pytest.mark.parametrize(("code", "name"), [("SMDP819", FSX), ("SMDP820", EFS)])
def test_missing_file_system_is_a_problem(check: Check, code: str, name: str) -> None:
    (problem,) = check(f"security_groups: {{{HOSTS}: {{}}}}\n", CHANNELS[code])[code].problems
    assert problem.message == f"there is no file system {name} in us-east-1"
    assert problem.text == name
    assert problem.help == "give the id of a file system of us-east-1 and of your account"


#: The hosts have addresses in 10.0.0.0/24, and the file systems in 10.0.1.0/24. Only address ranges are allowed.
APART = f"""\
subnets: {{{SUBNET}: {{}}, subnet-0b: {{}}}}
security_groups:
  {HOSTS}: {{outbound: [{{ports: 0-65535, peer: TARGET}}]}}
  {FILES}: {{inbound: [{{ports: 0-65535, peer: SOURCE}}], outbound: []}}
fsx: {{{FSX}: {{subnets: [subnet-0b], groups: [{FILES}]}}}}
efs: {{{EFS}: {{targets: {{subnet-0b: [{FILES}]}}}}}}
"""


@pytest.mark.parametrize("code", CHANNELS)
@pytest.mark.parametrize(
    ("source", "target", "is_open"),
    [
        ("10.0.0.0/24", "10.0.1.0/24", True),
        ("10.0.0.0/24", "10.0.0.0/24", False),
        ("10.0.1.0/24", "10.0.1.0/24", False),
    ],
    ids=["to the file system", "to the hosts", "from the file system"],
)
def test_rule_for_addresses_names_the_other_end(
    check: Check, code: str, source: str, target: str, is_open: bool
) -> None:
    found = check(APART.replace("SOURCE", source).replace("TARGET", target), CHANNELS[code])[code]
    assert found.checked
    assert [one.message.partition(":")[0] for one in found.problems] == (
        [] if is_open else [f"the hosts cannot reach {FSX if code == 'SMDP819' else EFS}"]
    )


class Ipv6Targets:
    """EC2 and EFS with a file system of which one target has only an IPv6 address."""

    def __init__(self, rule: dict[str, Any], *addresses: str) -> None:
        self._rule = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, **rule}
        self._targets = [{"MountTargetId": "fsmt-0a"}, *({"MountTargetId": one, "IpAddress": one} for one in addresses)]

    def describe_subnets(self, **_: Any) -> dict[str, Any]:
        return {"Subnets": [{"SubnetId": SUBNET, "AvailabilityZone": "us-east-1a", "CidrBlock": "10.0.0.0/24"}]}

    def describe_security_groups(self, **_: Any) -> dict[str, Any]:
        inbound = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/24"}]}]
        own = {"GroupId": HOSTS, "IpPermissions": [], "IpPermissionsEgress": [self._rule]}
        return {"SecurityGroups": [own, {"GroupId": FILES, "IpPermissions": inbound, "IpPermissionsEgress": []}]}

    def describe_mount_targets(self, **_: Any) -> dict[str, Any]:
        return {"MountTargets": [{**one, "AvailabilityZoneName": "us-east-1a"} for one in self._targets]}

    def describe_mount_target_security_groups(self, **_: Any) -> dict[str, Any]:
        return {"SecurityGroups": [FILES]}


ANY_V4, ANY_V6 = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}, {"Ipv6Ranges": [{"CidrIpv6": "::/0"}]}


@pytest.mark.parametrize(
    ("service", "checked", "problems"),
    [
        (Ipv6Targets(ANY_V4), False, 0),
        (Ipv6Targets(ANY_V6), False, 0),
        (Ipv6Targets({"UserIdGroupPairs": [{"GroupId": FILES}]}), True, 0),
        (Ipv6Targets({"UserIdGroupPairs": [{"GroupId": HOSTS}]}), True, 1),
        (Ipv6Targets(ANY_V6, "10.0.1.5"), True, 1),
    ],
    ids=["all of IPv4", "all of IPv6", "its group", "another group", "another target with a problem"],
)
def test_ranges_are_not_compared_with_a_target_without_an_ipv4_address(
    tmp_path: Path, service: Ipv6Targets, checked: bool, problems: int
) -> None:
    job = JOB.replace("channels:\n", f"channels:\n  more: {CHANNELS['SMDP820']}\n")
    plan = library.plan(write_job(tmp_path, job + NET))
    account = Account(plan, Clients(None, None, None, 0.0, lambda _: service, lambda _: service))
    found = result_of("SMDP820", "EFS", partial(network.nfs, account), plan.spec.document)
    assert (found.checked, len(found.problems)) == (checked, problems)
    if not checked:
        assert found.note == f"{EFS} has no IPv4 address to compare with the address ranges of the rules"


GROUP = f"security_groups: {{{HOSTS}: {{}}}}\n"


@pytest.mark.parametrize(
    "subnet", ["s3: interface", "s3: false}, subnet-0b: {s3: interface"], ids=["here", "in the VPC"]
)
def test_interface_endpoint_is_enough_for_s3(check: Check, subnet: str) -> None:
    found = check(f"{GROUP}subnets: {{{SUBNET}: {{{subnet}}}}}\n")["SMDP821"]
    assert (found.checked, found.problems, found.note) == (True, (), SUBNET)


def test_unknown_endpoints_are_not_checked(check: Check) -> None:
    account = f"{GROUP}subnets: {{{SUBNET}: {{s3: false}}}}\ndenied: ['ec2:DescribeVpcEndpoints']\n"
    found = check(account)["SMDP821"]
    assert (found.checked, found.problems, found.note) == (False, (), "no permission for DescribeVpcEndpoints")
    assert check(account.replace("false", "true"))["SMDP821"].checked


ENDPOINT = {"VpcEndpointType": "Interface", "State": "Available", "PrivateDnsEnabled": True}


class Ec2:
    """A VPC without a route to S3, and with one endpoint."""

    def __init__(self, endpoint: dict[str, Any]) -> None:
        self._endpoint = endpoint

    def describe_subnets(self, **_: Any) -> dict[str, Any]:
        return {"Subnets": [{"SubnetId": SUBNET, "VpcId": "vpc-0a"}]}

    def describe_route_tables(self, **_: Any) -> dict[str, Any]:
        return {"RouteTables": [{"Routes": []}]}

    def describe_vpc_endpoints(self, Filters: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        assert [one["Values"] for one in Filters] == [["vpc-0a"], ["com.amazonaws.us-east-1.s3"]]
        return {"VpcEndpoints": [self._endpoint]}


@pytest.mark.parametrize(
    ("change", "leads"),
    [
        ({}, True),
        ({"State": "pendingAcceptance"}, False),
        ({"PrivateDnsEnabled": False}, False),
        ({"DnsOptions": {"PrivateDnsOnlyForInboundResolverEndpoint": True}}, False),
        ({"VpcEndpointType": "Gateway"}, False),
    ],
    ids=["ready", "pending", "own names", "for other networks", "gateway of other subnets"],
)
def test_endpoint_must_answer_to_the_names_of_s3(tmp_path: Path, change: dict[str, Any], leads: bool) -> None:
    plan = library.plan(write_job(tmp_path, JOB + NET))
    ec2 = Ec2({**ENDPOINT, **change})
    account = Account(plan, Clients(None, None, None, 0.0, lambda _: ec2, lambda _: ec2))
    found = result_of("SMDP821", "route to S3", partial(network.s3_route, account), plan.spec.document)
    assert [one.message for one in found.problems] == ([] if leads else [f"no route leads from {SUBNET} to S3"])
