"""The check of the role's permissions simulates what a VPC and KMS keys need."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import smdp_launch as library
from smdp_launch.jobs.preflight.check import Account
from smdp_launch.jobs.preflight.permissions import role_permissions
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.rules.base.facts import Problem
from tests.conftest import JOB, write_job

NET = "network: {subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}\n"
KEY = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
KEY_ARN = f"arn:aws:kms:us-east-1:123456789012:key/{KEY}"
EC2 = "arn:aws:ec2:us-east-1:123456789012"
BASIC = [("s3:*", "*"), ("ecr:*", "*"), ("logs:*", "*")]


@dataclass
class Iam:
    """IAM's simulator with the policies of a role: pairs of patterns, for actions and for resources."""

    allowed: Sequence[tuple[str, str]]
    denied: str = ""
    conditional: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def get_paginator(self, operation: str) -> Iam:
        assert operation == "simulate_principal_policy"
        return self

    def paginate(self, **query: Any) -> Iterator[dict[str, Any]]:
        assert query["PolicySourceArn"] == "arn:aws:iam::123456789012:role/training"
        actions, (resource,) = query["ActionNames"], query["ResourceArns"]
        self.asked += [(one, resource) for one in actions]
        yield {"EvaluationResults": [self.result(one, resource) for one in actions]}

    def result(self, action: str, resource: str) -> dict[str, Any]:
        is_allowed = any(
            fnmatch.fnmatchcase(action, actions) and fnmatch.fnmatchcase(resource, resources)
            for actions, resources in self.allowed
        )
        decision = "explicitDeny" if action == self.denied else "allowed" if is_allowed else "implicitDeny"
        missing = ["kms:GrantIsForAWSResource"] if action == self.conditional else []
        return {"EvalActionName": action, "EvalDecision": decision, "MissingContextValues": missing}


def check(folder: Path, more: str, iam: Iam, job: str = JOB) -> tuple[list[Problem], list[str]]:
    """The problems and the notes of the check of a job file with these additional lines."""
    s3 = SimpleNamespace(list_objects_v2=lambda **_: {"Contents": [{"Key": "train/part-0"}]})
    clients = SimpleNamespace(s3=s3, service={"iam": iam}.__getitem__)
    plan = library.plan(write_job(folder, job + more))
    found = list(role_permissions(Account(plan, cast("Clients", clients))))
    return [one for one in found if isinstance(one, Problem)], [one for one in found if isinstance(one, str)]


def test_role_without_permissions_for_the_vpc_is_reported(tmp_path: Path) -> None:
    problems, notes = check(tmp_path, NET, Iam(BASIC))
    assert [one.at for one in problems] == [("network", "subnets")] * 3 + [("network", "security_groups")]
    assert [one.message.rpartition(" on ")[2] for one in problems] == [
        *("*", f"{EC2}:network-interface/*", f"{EC2}:subnet/subnet-0a1b2c3d", f"{EC2}:security-group/sg-0a1b2c3d")
    ]
    assert problems[1].message == (
        "the role training may not ec2:CreateNetworkInterface, ec2:CreateNetworkInterfacePermission, "
        f"ec2:DeleteNetworkInterface, ec2:DeleteNetworkInterfacePermission on {EC2}:network-interface/*"
    )
    assert "bucket" not in str(problems[1].help)
    assert notes == []


@pytest.mark.parametrize(
    "allowed",
    [
        [("ec2:*", "*")],
        [
            ("ec2:Describe*", "*"),
            ("ec2:*NetworkInterface*", f"{EC2}:network-interface/*"),
            ("ec2:CreateNetworkInterface", f"{EC2}:subnet/subnet-0a1b2c3d"),
            ("ec2:CreateNetworkInterface", f"{EC2}:security-group/sg-0a1b2c3d"),
        ],
    ],
    ids=["all resources", "the job's own"],
)
def test_role_with_permissions_for_the_vpc_passes(tmp_path: Path, allowed: list[tuple[str, str]]) -> None:
    problems, (note,) = check(tmp_path, NET, Iam([*BASIC, *allowed]))
    assert problems == []
    assert note == "reads the data, writes the output, pulls the image, writes logs, uses the VPC"


def test_job_without_vpc_and_keys_needs_no_permissions_for_them(tmp_path: Path) -> None:
    iam = Iam(BASIC)
    assert check(tmp_path, "", iam)[0] == []
    assert {action.partition(":")[0] for action, _ in iam.asked} == {"s3", "ecr", "logs"}


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        (KEY, KEY_ARN),
        (KEY_ARN, KEY_ARN),
        ("alias/team", "arn:aws:kms:us-east-1:123456789012:key/*"),
        ("arn:aws:kms:us-east-1:210987654321:alias/team", "arn:aws:kms:us-east-1:210987654321:key/*"),
    ],
    ids=["id", "ARN", "alias", "ARN of an alias"],
)
def test_output_key_is_simulated_by_its_arn(tmp_path: Path, key: str, resource: str) -> None:
    iam = Iam([*BASIC, ("kms:*", resource)])
    problems, (note,) = check(tmp_path, f"encryption: {{output_key: '{key}'}}\n", iam)
    assert problems == []
    assert note.endswith("writes logs, encrypts the output")
    assert iam.asked[-3:] == [(f"kms:{one}", resource) for one in ("Decrypt", "Encrypt", "GenerateDataKey")]


def test_key_that_only_its_own_policy_may_allow_is_not_checked(tmp_path: Path) -> None:
    problems, notes = check(tmp_path, f"encryption: {{output_key: {KEY}}}\n", Iam(BASIC))
    assert problems == []
    assert notes == ["not checked, a policy of the key may allow them: kms:Decrypt, kms:Encrypt, kms:GenerateDataKey"]


def test_denied_key_is_reported(tmp_path: Path) -> None:
    (problem,), _ = check(tmp_path, f"encryption: {{output_key: {KEY}}}\n", Iam(BASIC, denied="kms:Encrypt"))
    assert problem.at == ("encryption", "output_key")
    assert problem.message == f"the role training may not kms:Encrypt on {KEY_ARN}"


def test_grant_for_the_volumes_may_depend_on_a_condition(tmp_path: Path) -> None:
    job = JOB.replace("ml.p4d.24xlarge", "ml.p3.16xlarge")  # without local disks, which no key encrypts
    iam = Iam(BASIC, conditional="kms:CreateGrant")
    problems, notes = check(tmp_path, f"encryption: {{volume_key: {KEY}}}\n", iam, job)
    assert problems == []
    assert notes == ["not checked, they depend on conditions: kms:CreateGrant"]
