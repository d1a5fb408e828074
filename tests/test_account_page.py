"""The policies of the page about the AWS account, and the permissions of the checks, fit the calls in the code."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.session import Session

import smdp_launch as library
from smdp_launch.jobs.preflight.check import Account
from smdp_launch.jobs.preflight.permissions import _needs
from smdp_launch.jobs.preflight.run import CHECKS
from smdp_launch.jobs.service.clients import connect_aws
from smdp_launch.serving import resources
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import JOB, ROOT, write_job
from tests.support.doc_examples import blocks

PAGE = "docs/how-to/team/account.md"
POLICIES = ("trust", "role", "vpc", "kms", "remote debug", "preflight", "launch", "image", "serve")
KEY = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
PLACES = {
    "ACCOUNT": "123456789012",
    "REGION": "us-east-1",
    "BUCKET": "bucket",
    "KEY": KEY,
}

#: IAM's prefix of the actions of a service, where it is not botocore's name.
PREFIXES = {"efs": "elasticfilesystem", "service-quotas": "servicequotas", "sagemaker-runtime": "sagemaker"}
#: Operations that have no permission of their own name.
ACTIONS = {
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
}
NO_OPERATIONS = {
    *("iam:PassRole", "s3:ListBucket", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel"),
    *("ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
}
#: Two of the services that the code calls have an operation with this name.
SERVICES = {"describe_file_systems": "fsx", "describe_images": "ecr"}
#: Calls with names that are made of parts: `getattr(client, f"create_{kind.call}")`.
DYNAMIC = "smdp_launch/serving/resources.py"
VERBS = ("create", "delete", "describe", "stop")

#: Code that calls only the local cloud: files, and functions of files that also call AWS.
LOCAL = ("smdp_launch/localcloud/", "smdp_launch/rehearsals/", "smdp_launch/serving/local.py", "smdp_launch/testing/")
LOCAL_FUNCTIONS = {
    ("smdp_launch/jobs/submit.py", "seed"),
    ("smdp_launch/jobs/submit.py", "_replace"),
    ("smdp_launch/cli/commands/deploy/session.py", "_shown"),
}
#: The policy of the calls in a file. The longest prefix counts; the others are calls of `launch` and what follows it.
FILES = {
    "smdp_launch/doctor/": "other",
    "smdp_launch/image/": "image",
    "smdp_launch/jobs/notifications/": "other",
    "smdp_launch/jobs/preflight/": "preflight",
    "smdp_launch/jobs/price_list.py": "other",
    "smdp_launch/serving/": "serve",
}
#: What the services, other programs and code of other commands call for these commands.
FURTHER = {
    "preflight": {"sagemaker:ListHyperParameterTuningJobs", "sagemaker:Search"},
    "image": {
        *("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:CompleteLayerUpload"),
        *("ecr:GetDownloadUrlForLayer", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"),
    },
    "launch": {"iam:PassRole", "s3:AbortMultipartUpload", "sagemaker:AddTags"},
    "serve": {"iam:PassRole"},
    "other": {"kms:Decrypt", "kms:GenerateDataKey", "ssm:StartSession"},
}


def policies() -> dict[str, dict[str, Any]]:
    texts = blocks(PAGE, "json")
    for name, value in PLACES.items():
        texts = [re.sub(rf"\b{name}\b", value, one) for one in texts]
    return dict(zip(POLICIES, map(json.loads, texts), strict=True))


def actions_of(policy: dict[str, Any]) -> set[str]:
    return {action for one in policy["Statement"] for action in one["Action"]}


@cache
def operations(service: str) -> dict[str, str]:
    """The operations of a service of botocore, by the names of its client's methods."""
    return {xform_name(one): one for one in Session().get_service_model(service).operation_names}


def action(service: str, operation: str) -> str:
    name = f"{PREFIXES.get(service, service)}:{operation}"
    return ACTIONS.get(name, name)


@cache
def trees() -> dict[str, ast.Module]:
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "smdp_launch").rglob("*.py"))}
    return {name: ast.parse(path.read_text()) for name, path in paths.items() if not name.startswith(LOCAL)}


@cache
def called_services() -> frozenset[str]:
    """The services for which the code makes clients."""
    makers, known = {"service", "quick", "client", "create_client", "connect_service"}, {"sagemaker", "s3", "logs"}
    known |= {"sagemaker-runtime", "scheduler"}  # by constants
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in makers and isinstance(node.args[0].value, str):
                    known.add(node.args[0].value)
    return frozenset(known & set(Loader().list_available_services("service-2")))


@cache
def methods() -> dict[str, list[str]]:
    """The services that have a method, by its name."""
    found: dict[str, list[str]] = {}
    for service in sorted(called_services()):
        for one in operations(service):
            found.setdefault(one, []).append(service)
    return found


def calls(name: str, tree: ast.Module) -> Iterator[str]:
    """The actions of the methods of clients that the code names, as an attribute or as a paginator's name."""
    nodes = [ast.walk(one) for one in tree.body if (name, getattr(one, "name", "")) not in LOCAL_FUNCTIONS]
    for node in (one for each in nodes for one in each):
        method = node.attr if isinstance(node, ast.Attribute) else ""
        if method == "get_paginator" or (
            isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get_paginator"
        ):
            method = str(getattr(node.args[0], "value", "")) if isinstance(node, ast.Call) else ""
        if method not in methods() or (method == "search" and not ast.unparse(node).endswith("sagemaker.search")):
            continue  # `search` is also a method of regular expressions
        found = methods()[method]
        assert len(found) == 1 or method in SERVICES, f"{method} of {name} is an operation of {found}"
        service = SERVICES.get(method, found[0])
        yield action(service, operations(service)[method])
    if name == DYNAMIC:
        kinds = [one.call for one in vars(resources).values() if isinstance(one, resources.Kind)]
        names = [f"{verb}_{kind}" for verb in VERBS for kind in kinds]
        yield from (
            action("sagemaker", operations("sagemaker")[one]) for one in names if one in operations("sagemaker")
        )


@cache
def called() -> dict[str, set[str]]:
    """The actions of all calls, by the name of the policy that must have them."""
    found: dict[str, set[str]] = {one: set() for one in ("preflight", "launch", "image", "serve", "other")}
    for name, tree in trees().items():
        prefix = max((one for one in FILES if name.startswith(one)), key=len, default="")
        found[FILES.get(prefix, "launch")] |= set(calls(name, tree))
    for each in found.values():
        each.discard("sts:GetCallerIdentity")  # every identity has it
    return found


def test_calls_with_made_up_names_are_only_where_the_test_expects_them() -> None:
    found = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"
        if ast.unparse(node.args[0]).endswith(("sagemaker", "s3", "logs"))
    }
    assert found == {DYNAMIC}


@pytest.mark.parametrize("policy", ["preflight", "launch", "image", "serve", "other"])
def test_policies_of_users_allow_the_calls_of_the_code_and_nothing_more(policy: str) -> None:
    needed = called()[policy] | FURTHER.get(policy, set())
    if policy == "other":
        page = (ROOT / PAGE).read_text()
        rows = re.findall(r"^\| ((?:[a-z]+:\w+(?:, )?)+) \|", page, re.MULTILINE)
        assert {one for row in rows for one in row.split(", ")} == needed
        return
    known = policies()
    if policy == "serve":  # which a user has in addition
        needed -= actions_of(known["launch"]) - {"iam:PassRole"}
    assert actions_of(known[policy]) == needed


def test_actions_of_all_policies_exist() -> None:
    services = {prefix: name for name, prefix in PREFIXES.items() if name != "sagemaker-runtime"}
    for policy in list(policies().values())[1:]:
        for one in actions_of(policy) - NO_OPERATIONS:
            prefix, _, operation = one.partition(":")
            known = [services.get(prefix, prefix), *(["sagemaker-runtime"] if prefix == "sagemaker" else [])]
            assert any(operation in operations(each).values() for each in known), one


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_are_complete(policy: str) -> None:
    written = policies()[policy]
    assert written.keys() == {"Version", "Statement"}
    assert written["Version"] == "2012-10-17"
    for one in written["Statement"]:
        assert one["Effect"] == "Allow"
        assert ("Resource" in one) == (policy != "trust")
        placeholders = {"ACCOUNT", "REGION", "BUCKET", "KEY"} & set(re.findall(r"[A-Z]+", json.dumps(one)))
        assert placeholders == set()


EVERYTHING = """\
checkpoint: {s3: "s3://bucket/checkpoints"}
tracking: {tensorboard: {s3: "s3://bucket/board"}}
network: {subnets: [subnet-00000000000000001], security_groups: [sg-00000000000000001]}
encryption: {output_key: 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9}
remote_debug: true
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="bucket")
        boto3.client("s3").put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield made


@pytest.mark.usefixtures("cloud")
def test_role_of_the_page_has_all_permissions_that_preflight_simulates(tmp_path: Path) -> None:
    job = JOB.replace("ml.p4d.24xlarge", "ml.p3.16xlarge")  # whose volumes a key can encrypt
    plan = library.plan(
        write_job(tmp_path, job + EVERYTHING.replace("{output_key", f"{{volume_key: {KEY}, output_key"))
    )
    known = policies()
    statements = [one for name in ("role", "vpc", "kms", "remote debug") for one in known[name]["Statement"]]
    needs = list(_needs(Account(plan, connect_aws("us-east-1"))))
    missing = [
        (action, need.resource)
        for need in needs
        for action in need.actions
        if not any(
            action in one["Action"] and fnmatch.fnmatchcase(need.resource, one["Resource"]) for one in statements
        )
    ]
    assert missing == []
    simulated = {action for need in needs for action in need.actions}
    assert {"ec2:CreateNetworkInterface", "kms:CreateGrant", "kms:Encrypt", "ssmmessages:OpenDataChannel"} <= simulated


def test_trust_policy_lets_sagemaker_assume_the_role() -> None:
    (statement,) = policies()["trust"]["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Action"] == "sts:AssumeRole"


RESOURCES = """\
subnets: {subnet-00000000000000001: {s3: interface}}
fsx: {fs-0123456789abcdef0: {}}
efs: {fs-0fedcba987654321f: {}}
training_plans: {spring: {type: ml.p4d.24xlarge, count: 2}}
images: ["smdp-pytorch:2.0.1-cu118"]
"""
FILE_SYSTEMS = """\
  lustre: {fsx: fs-0123456789abcdef0, path: /fsx/data}
  nfs: {efs: fs-0fedcba987654321f, path: /data}
"""
TRAINING_PLAN = "  training_plan: arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring\n"
ENDPOINT = "serve: {image: mine/serving:1, instance_type: ml.m5.large}\n"


def documented() -> dict[str, set[str]]:
    """The permissions of each check in the guide about `preflight`, by its code."""
    page = (ROOT / "docs" / "how-to" / "preflight.md").read_text()
    rows = re.findall(r"^\| .* \| \[(SMDP\d+)\]\(\S+\) \| (.*) \|$", page, re.MULTILINE)
    return {code: set(re.findall(r"\b([a-z0-9]+:[A-Z]\w+)", text)) for code, text in rows}


@pytest.mark.parametrize("kind", ["ml.p4d.24xlarge", "ml.p3.16xlarge"], ids=["with EFA", "without EFA"])
def test_guide_about_preflight_has_the_permissions_of_each_check(cloud: LocalCloud, tmp_path: Path, kind: str) -> None:
    (cloud.state / "account.yaml").write_text(RESOURCES)
    job = JOB.replace("\noutput:", f"\n{FILE_SYSTEMS}output:").replace("ml.p4d.24xlarge", kind) + EVERYTHING + ENDPOINT
    plan = library.plan(write_job(tmp_path, job.replace("  max_run: 600\n", f"  max_run: 600\n{TRAINING_PLAN}")))
    made: set[str] = set()

    def watched(client: Any) -> Any:
        client.meta.events.register("before-call", lambda model, **_: made.add(action_of(model)))
        return client

    clients = connect_aws("us-east-1")
    account = Account(
        plan, replace(clients, s3=watched(clients.s3), service=lambda name: watched(clients.service(name)))
    )
    expected = documented()
    assert expected.keys() == {one.code for one in CHECKS}
    missing: dict[str, set[str]] = {}
    for check in CHECKS:
        made.clear()
        list(check.inspect(replace(account)))  # the calls of earlier checks are repeated
        missing[check.code] = made - expected[check.code]
    assert {code: names for code, names in missing.items() if names} == {}


def action_of(model: Any) -> str:
    return action(model.service_model.service_name, model.name)


def test_guide_about_preflight_has_only_permissions_that_a_check_needs() -> None:
    listed = {one for each in documented().values() for one in each}
    assert listed - {"sts:GetCallerIdentity"} == called()["preflight"] | FURTHER["preflight"]
