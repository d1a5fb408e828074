"""Checks of identity, role and image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from smdp_launch.catalog.images import parse_image
from smdp_launch.catalog.placeholders import ACCOUNT
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of
from smdp_launch.rules.base.facts import Problem

_SERVICE = "sagemaker.amazonaws.com"
_REFUSED = frozenset(
    {
        "InvalidClientTokenId",
        "ExpiredToken",
        "ExpiredTokenException",
        "SignatureDoesNotMatch",
        "AuthFailure",
        "UnrecognizedClientException",
    }
)


def identity(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    try:
        known = account.identity
    except ClientError as error:
        if code_of(error) not in _REFUSED:
            raise
        help_ = "log in again, or set AWS_PROFILE to a profile with valid credentials"
        yield Problem(("region",), f"AWS does not accept your credentials ({code_of(error)})", help_)
    else:
        yield f"{known['Arn']}, {account.plan.spec.region}"


def role(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    arn = account.plan.spec.role
    name, owner = arn.rpartition("/")[2], arn.split(":")[4]
    own = _own_account(account)
    if own not in (owner, ACCOUNT):
        message = f"the role belongs to account {owner}, and your credentials to {own}"
        yield Problem(("role",), message, f"give a role of {own}")
        return
    try:
        policy = account.service("iam").get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    except ClientError as error:
        if code_of(error) != "NoSuchEntity":
            raise
        yield Problem(("role",), f"there is no role {name}", "give the ARN of a role that exists, or create this one")
        return
    if _trusts_sagemaker(policy):
        yield f"{name}, which SageMaker may assume"
        return
    help_ = f"let its trust policy allow sts:AssumeRole to the service {_SERVICE}"
    yield Problem(("role",), f"the role {name} does not trust SageMaker", help_)


def _own_account(account: Account) -> str:
    from botocore.exceptions import ClientError

    try:
        return str(account.identity["Account"])
    except ClientError as error:
        raise NotChecked("the account of your credentials is not known") from error


def _trusts_sagemaker(policy: Any) -> bool:
    """Whether a statement allows the service to assume the role. Conditions are not evaluated."""
    if isinstance(policy, str):
        policy = json.loads(unquote(policy))
    for one in _listed(policy.get("Statement", [])):
        principal = one.get("Principal", {})
        services = _listed(principal.get("Service", [])) if isinstance(principal, dict) else [principal]
        actions = _listed(one.get("Action", []))
        if one.get("Effect") == "Allow" and {_SERVICE, "*"} & {*services} and _may_assume(actions):
            return True
    return False


def _may_assume(actions: list[Any]) -> bool:
    return any(str(one).lower() in {"sts:assumerole", "sts:*", "*"} for one in actions)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def image(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    uri = str(account.plan.request["AlgorithmSpecification"]["TrainingImage"])
    parsed = parse_image(uri)
    if parsed is None or parsed.account is None:
        raise NotChecked(f"{uri} is in no ECR registry")
    image_id = {"imageDigest": parsed.digest} if parsed.digest else {"imageTag": parsed.tag or "latest"}
    try:
        account.service("ecr").describe_images(
            registryId=parsed.account, repositoryName=parsed.repository, imageIds=[image_id]
        )
    except ClientError as error:
        code = code_of(error)
        if code not in ("RepositoryNotFoundException", "ImageNotFoundException"):
            raise
        missing = "repository" if code.startswith("Repository") else "image"
        help_ = f"push it with `smdp-launch image push {parsed.repository}:{parsed.tag or 'TAG'} --create`"
        yield Problem(("image",), f"there is no {missing} {uri}", help_)
    else:
        yield uri
