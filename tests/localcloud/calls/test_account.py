"""The account: services answer from a file in the state folder, for clients of every protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.account import GROUP, SUBNET, VPC
from tests.conftest import ROOT
from tests.support.services.cloud import Cloud, client_of

ACCOUNT = """\
caller: role/engineer
denied: [ec2:DescribeRouteTables, iam:Sim*]
roles:
  training: {denied: ["s3:Put*"]}
  lambda: {trusts: [lambda.amazonaws.com]}
quotas: {ml.p4d.24xlarge: 2}
subnets:
  subnet-0a: {vpc: vpc-0a, zone: us-east-1b, addresses: 3, s3: false}
security_groups:
  sg-0a: {vpc: vpc-0a, inbound: [{ports: 1018-1023, peer: sg-0a}, {ports: "988", peer: 10.0.0.0/8}]}
fsx: {fs-0123456789abcdef0: {subnets: [subnet-0a], groups: [sg-0a], mount_name: abcd}}
efs: {fs-0fedcba987654321f: {targets: {subnet-0a: [sg-0a]}}}
"""


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Cloud:
    (shared_cloud.state_dir / "account.yaml").write_text(ACCOUNT)
    return shared_cloud


@pytest.fixture
def client(cloud: Cloud) -> Callable[[str], Any]:
    return lambda service: client_of(cloud.endpoint, service)


Client = Callable[[str], Any]


def refused(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def test_without_account_file_one_default_network_exists(shared_cloud: Cloud) -> None:
    (shared_cloud.state_dir / "account.yaml").unlink(missing_ok=True)
    ec2 = client_of(shared_cloud.endpoint, "ec2")
    assert [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]] == [SUBNET]
    (group,) = ec2.describe_security_groups(GroupIds=[GROUP])["SecurityGroups"]
    assert group["VpcId"] == VPC
    assert group["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == GROUP
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    (table,) = ec2.describe_route_tables()["RouteTables"]
    assert endpoint["VpcEndpointId"] in [one["GatewayId"] for one in table["Routes"]]
    assert client_of(shared_cloud.endpoint, "iam").get_role(RoleName="any")["Role"]["RoleName"] == "any"
    assert client_of(shared_cloud.endpoint, "fsx").describe_file_systems()["FileSystems"] == []


def test_caller_identity_is_that_of_the_account_file(client: Client) -> None:
    known = client("sts").get_caller_identity()
    assert (known["Account"], known["Arn"]) == ("000000000000", "arn:aws:iam::000000000000:role/engineer")


def test_role_has_its_trusted_services(client: Client) -> None:
    role = client("iam").get_role(RoleName="lambda")["Role"]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"]["Service"] == ["lambda.amazonaws.com"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/lambda"
    assert refused(client("iam").get_role, RoleName="unknown") == "NoSuchEntity"


def test_policy_simulation_returns_denied_actions_of_role(cloud: Cloud, client: Client) -> None:
    (cloud.state_dir / "account.yaml").write_text(ACCOUNT.replace(", iam:Sim*", ""))
    source = {"PolicySourceArn": "arn:aws:iam::000000000000:role/training", "ResourceArns": ["arn:aws:s3:::mine/a"]}
    answer = client("iam").simulate_principal_policy(ActionNames=["s3:GetObject", "s3:PutObject"], **source)
    decisions = {one["EvalActionName"]: one["EvalDecision"] for one in answer["EvaluationResults"]}
    assert decisions == {"s3:GetObject": "allowed", "s3:PutObject": "explicitDeny"}


def test_network_of_account_file_is_described(client: Client) -> None:
    ec2 = client("ec2")
    (subnet,) = ec2.describe_subnets(SubnetIds=["subnet-0a"])["Subnets"]
    assert (subnet["VpcId"], subnet["AvailabilityZone"]) == ("vpc-0a", "us-east-1b")
    assert subnet["AvailableIpAddressCount"] == 3
    (group,) = ec2.describe_security_groups(GroupIds=["sg-0a"])["SecurityGroups"]
    assert [(one["FromPort"], one["ToPort"]) for one in group["IpPermissions"]] == [(1018, 1023), (988, 988)]
    assert group["IpPermissions"][1]["IpRanges"] == [{"CidrIp": "10.0.0.0/8"}]
    assert ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": ["vpc-0a"]}])["VpcEndpoints"] == []
    assert refused(ec2.describe_subnets, SubnetIds=["subnet-0b"]) == "InvalidSubnetID.NotFound"
    assert refused(ec2.describe_security_groups, GroupIds=["sg-0b"]) == "InvalidGroup.NotFound"


def test_file_systems_of_account_file_are_described(client: Client) -> None:
    (lustre,) = client("fsx").describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"])["FileSystems"]
    assert (lustre["SubnetIds"], lustre["LustreConfiguration"]["MountName"]) == (["subnet-0a"], "abcd")
    efs = client("efs")
    (nfs,) = efs.describe_file_systems(FileSystemId="fs-0fedcba987654321f")["FileSystems"]
    assert nfs["LifeCycleState"] == "available"
    (target,) = efs.describe_mount_targets(FileSystemId="fs-0fedcba987654321f")["MountTargets"]
    assert (target["SubnetId"], target["VpcId"]) == ("subnet-0a", "vpc-0a")
    groups = efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
    assert groups["SecurityGroups"] == ["sg-0a"]
    assert refused(efs.describe_file_systems, FileSystemId="fs-00000000") == "FileSystemNotFound"
    assert refused(client("fsx").describe_file_systems, FileSystemIds=["fs-00000000000000000"]) == "FileSystemNotFound"


def test_file_systems_have_addresses_in_their_subnets(cloud: Cloud, client: Client) -> None:
    subnets = "subnets:\n  subnet-00: {}\n"
    (cloud.state_dir / "account.yaml").write_text(ACCOUNT.replace("subnets:\n", subnets))
    (subnet,) = client("ec2").describe_subnets(SubnetIds=["subnet-0a"])["Subnets"]
    (lustre,) = client("fsx").describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"])["FileSystems"]
    ids = lustre["NetworkInterfaceIds"]
    (interface,) = client("ec2").describe_network_interfaces(NetworkInterfaceIds=ids)["NetworkInterfaces"]
    (target,) = client("efs").describe_mount_targets(FileSystemId="fs-0fedcba987654321f")["MountTargets"]
    addresses = [ip_address(interface["PrivateIpAddress"]), ip_address(target["IpAddress"])]
    assert subnet["CidrBlock"] == "10.0.1.0/24"
    assert len(set(addresses)) == 2
    assert all(one in ip_network(subnet["CidrBlock"]) for one in addresses)


def test_interface_endpoint_of_the_account_is_described(cloud: Cloud, client: Client) -> None:
    account = ACCOUNT.replace("s3: false", "s3: interface").replace("ec2:DescribeRouteTables, ", "")
    (cloud.state_dir / "account.yaml").write_text(account)
    (endpoint,) = client("ec2").describe_vpc_endpoints()["VpcEndpoints"]
    assert (endpoint["VpcEndpointType"], endpoint["PrivateDnsEnabled"]) == ("Interface", True)
    assert endpoint["DnsOptions"]["PrivateDnsOnlyForInboundResolverEndpoint"] is False
    assert (endpoint["VpcId"], endpoint["SubnetIds"]) == ("vpc-0a", ["subnet-0a"])
    (table,) = client("ec2").describe_route_tables()["RouteTables"]
    assert [one["GatewayId"] for one in table["Routes"]] == ["local"]


def test_quotas_are_listed_by_name_and_read_by_code(client: Client) -> None:
    quotas = client("service-quotas")
    listing = quotas.get_paginator("list_service_quotas")
    pages = listing.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 60})
    known = {one["QuotaName"]: one for page in pages for one in page["Quotas"]}
    mine = known["ml.p4d.24xlarge for training job usage"]
    assert mine["Value"] == 2.0
    assert known["ml.p3dn.24xlarge for spot training job usage"]["Value"] == 1000.0
    assert known["ml.p4d.24xlarge for endpoint usage"]["Value"] == 2.0
    assert known["ml.m5.large for transform job usage"]["Value"] == 1000.0
    concurrency = known["Maximum total concurrency that can be allocated across all serverless endpoints"]
    assert (concurrency["QuotaCode"], concurrency["Value"]) == ("L-96300102", 1000.0)
    assert quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=mine["QuotaCode"])["Quota"] == mine
    assert refused(quotas.get_service_quota, ServiceCode="sagemaker", QuotaCode="L-0") == "NoSuchResourceException"


def test_job_above_quota_is_refused_with_the_service_message(cloud: Cloud) -> None:
    with pytest.raises(ClientError) as caught:
        cloud.sagemaker.create_training_job(**cloud.request("too-many", hosts=3))
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceLimitExceeded"
    assert (
        "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 2 Instances, with current "
        "utilization of 0 Instances and a request delta of 3 Instances." in error["Message"]
    )
    assert not (cloud.state_dir / "jobs" / "too-many").exists()


def test_quota_counts_running_jobs(cloud: Cloud) -> None:
    cloud.start("first", "import time; time.sleep(600)", hosts=2)
    assert refused(cloud.sagemaker.create_training_job, **cloud.request("second")) == "ResourceLimitExceeded"
    # A retry of a request whose answer was lost reports the existing job, not the quota that this job uses.
    assert refused(cloud.sagemaker.create_training_job, **cloud.request("first", hosts=2)) == "ResourceInUse"
    cloud.sagemaker.stop_training_job(TrainingJobName="first")
    cloud.wait("first")
    assert cloud.run("second", "print('within the quota')")["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("ec2", "describe_route_tables", "UnauthorizedOperation"),
        ("sts", "get_caller_identity", "AccessDenied"),
        ("fsx", "describe_file_systems", "AccessDeniedException"),
        ("efs", "describe_file_systems", "AccessDeniedException"),
        ("cloudwatch", "list_metrics", "AccessDeniedException"),
        ("sagemaker", "list_training_jobs", "AccessDeniedException"),
    ],
)
def test_action_denied_to_caller_is_refused(cloud: Cloud, client: Client, service: str, call: str, code: str) -> None:
    denied = "denied: [ec2:DescribeRouteTables, sts:*, fsx:*, elasticfilesystem:*, cloudwatch:*, sagemaker:List*]"
    (cloud.state_dir / "account.yaml").write_text(denied)
    assert refused(getattr(client(service), call)) == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quotas: {ml.p4d.24xlarge: two}", "quotas.ml.p4d.24xlarge: Input should be a valid integer"),
        ("rolls: {}", "rolls: Extra inputs are not permitted"),
        ("security_groups: {sg-0a: {inbound: [{ports: 80-, peer: sg-0a}]}}", "security_groups.sg-0a.inbound.0.ports"),
        ("a: [", "while parsing"),
        ("- 1", "account.yaml cannot be used"),
    ],
)
def test_error_in_account_file_is_returned_to_every_client(cloud: Cloud, text: str, message: str) -> None:
    (cloud.state_dir / "account.yaml").write_text(text)
    with pytest.raises(ClientError, match="InternalFailure") as caught:
        cloud.sagemaker.list_training_jobs()
    assert message in caught.value.response["Error"]["Message"]
    (cloud.state_dir / "account.yaml").unlink()
    cloud.sagemaker.list_training_jobs()


def test_unknown_call_is_refused_in_the_form_of_its_service(client: Client) -> None:
    assert refused(client("ec2").describe_vpcs) == "UnknownOperationException"
    assert refused(client("efs").describe_access_points) == "UnknownOperationException"
    assert refused(client("iam").list_users) == "UnknownOperationException"
    assert refused(client("cloudwatch").list_dashboards) == "UnknownOperationException"


def test_strings_of_account_file_reach_clients_unchanged(cloud: Cloud, client: Client) -> None:
    odd = "subnet-<&\"'>"
    (cloud.state_dir / "account.yaml").write_text(json.dumps({"subnets": {odd: {"vpc": "a&b"}}}))
    (subnet,) = client("ec2").describe_subnets(SubnetIds=[odd])["Subnets"]
    assert (subnet["SubnetId"], subnet["VpcId"]) == (odd, "a&b")


def test_account_file_in_guide_is_valid(cloud: Cloud, client: Client) -> None:
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs/how-to/local-cloud.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (cloud.state_dir / "account.yaml").write_text(text)
    assert client("sts").get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/ana"
    assert refused(client("fsx").describe_file_systems) == "AccessDeniedException"
    assert len(client("ec2").describe_security_groups()["SecurityGroups"][0]["IpPermissions"]) == 2
