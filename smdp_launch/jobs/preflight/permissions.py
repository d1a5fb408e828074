"""Checks the permissions of the job's role with IAM's policy simulator.

The simulator knows neither the policies of buckets, repositories and keys nor the values that conditions will have. It
takes a resource literally, also a `*` in it, so it gets the names that this job will use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from smdp_launch.catalog.images import parse_image
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of, s3_channels
from smdp_launch.request.build import checkpoint_location, tensorboard_location
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.rules.base.facts import Problem

_READ = ("s3:GetObject",)
_WRITE = ("s3:PutObject",)
_CHECKPOINTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_LOGS = ("logs:CreateLogStream", "logs:PutLogEvents")
#: https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html, checked 2026-11-27.
_SHELLS = (
    *("ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel"),
    *("ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
)
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
#: https://github.com/awsdocs/amazon-sagemaker-developer-guide, doc_source/sagemaker-roles.md, checked 2026-11-30. S3
#: also needs GenerateDataKey: https://www.repost.aws/knowledge-center/s3-large-file-encryption-kms-key.
_INTERFACES = (
    *("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission"),
    *("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission"),
)
_VPC = (
    *("ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups"),
    *("ec2:DescribeSubnets", "ec2:DescribeVpcs"),
)
#: The source archive is encrypted with this key, too. Every host reads it.
_OUTPUT_KEY = ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")
_VOLUME_KEY = ("kms:CreateGrant",)


@dataclass(frozen=True)
class _Need:
    """Actions that the job needs on a resource for the field `at`; `purpose` describes them for the user."""

    purpose: str
    at: Location
    actions: tuple[str, ...]
    resource: str

    @property
    def service(self) -> str:
        return self.actions[0].partition(":")[0]


def role_permissions(account: Account) -> Iterator[Problem | str]:
    role = account.plan.spec.role
    name, unknown, is_allowed = role.rpartition("/")[2], dict[str, list[str]](), True
    needs = list(_needs(account))
    for need in needs:
        denied: list[str] = []
        for one in _refused(account, need):
            reason = _why_unknown(one, need)
            actions = denied if reason is None else unknown.setdefault(reason, [])
            actions.append(str(one["EvalActionName"]))
        is_allowed = is_allowed and not denied
        if denied:
            help_ = f"allow {', '.join(denied)} to the role {name}"
            if need.service == "s3":
                help_ += "; this check does not see a bucket's own policy"
            yield Problem(need.at, f"the role {name} may not {', '.join(denied)} on {need.resource}", help_)
    for reason, actions in unknown.items():
        yield f"not checked, {reason}: {', '.join(dict.fromkeys(actions))}"
    if is_allowed and not unknown:
        yield ", ".join(dict.fromkeys(one.purpose for one in needs))


def _needs(account: Account) -> Iterator[_Need]:
    spec, job = account.plan.spec, account.plan.job
    partition, owner = spec.role.split(":")[1], spec.role.split(":")[4]
    bucket = partial(_in_bucket, partition)
    for name, uri in s3_channels(account).items():
        where = S3Location.parse(uri)
        yield from bucket("reads the data", ("channels", name, "s3"), where.bucket, _first(account, where), _READ)
    # The source archive is beside the output.
    source = source_location(spec.output.s3, job)
    yield from bucket("writes the output", ("output", "s3"), source.bucket, source.key, _READ)
    where = S3Location.parse(spec.output.s3).join(job, "output", "model.tar.gz")
    yield _Need("writes the output", ("output", "s3"), _WRITE, f"arn:{partition}:s3:::{where.bucket}/{where.key}")
    checkpoints = checkpoint_location(spec, job)
    if checkpoints is not None:
        where = S3Location.parse(checkpoints).join("checkpoint")
        yield from bucket("saves checkpoints", ("checkpoint", "s3"), where.bucket, where.key, _CHECKPOINTS)
    board = tensorboard_location(spec, job)
    if board is not None:
        where = S3Location.parse(board).join("events.out.tfevents.0")
        resource = f"arn:{partition}:s3:::{where.bucket}/{where.key}"
        yield _Need("writes TensorBoard's files", ("tracking", "tensorboard", "s3"), _WRITE, resource)
    image = parse_image(str(account.plan.request["AlgorithmSpecification"]["TrainingImage"]))
    if image is not None and image.account is not None:
        yield _Need("pulls the image", ("image",), ("ecr:GetAuthorizationToken",), "*")
        repository = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
        yield _Need("pulls the image", ("image",), _PULL, repository)
    if spec.remote_debug:
        yield _Need("opens shells", ("remote_debug",), _SHELLS, "*")
    group = f"arn:{partition}:logs:{spec.region}:{owner}:log-group:{_LOG_GROUP}"
    yield _Need("writes logs", ("role",), ("logs:CreateLogGroup",), f"{group}:*")
    yield _Need("writes logs", ("role",), _LOGS, f"{group}:log-stream:{job}/algo-1")
    yield from _network_needs(spec, f"arn:{partition}:ec2:{spec.region}:{owner}")
    keys = f"arn:{partition}:kms:{spec.region}:{owner}"
    for field, purpose, actions in (
        ("output_key", "encrypts the output", _OUTPUT_KEY),
        ("volume_key", "encrypts the volumes", _VOLUME_KEY),
    ):
        key = getattr(spec.encryption, field)
        if key is not None:
            yield _Need(purpose, ("encryption", field), actions, _key_arn(key, keys))


def _network_needs(spec: JobSpec, arns: str) -> Iterator[_Need]:
    """The network interfaces of the hosts in the VPC. Their ids are not known before the job runs."""
    if spec.network.subnets is None:
        return
    purpose, at = "uses the VPC", ("network", "subnets")
    yield _Need(purpose, at, _VPC, "*")
    yield _Need(purpose, at, _INTERFACES, f"{arns}:network-interface/*")
    create = _INTERFACES[:1]
    for subnet in spec.network.subnets:
        yield _Need(purpose, at, create, f"{arns}:subnet/{subnet}")
    for group in spec.network.security_groups or ():
        yield _Need(purpose, ("network", "security_groups"), create, f"{arns}:security-group/{group}")


def _key_arn(key: str, arns: str) -> str:
    """The ARN of a key of the job file; with a wildcard for an alias, since the key that it means is not known here."""
    if "alias/" in key:
        return f"{key.partition(':alias/')[0] if key.startswith('arn:') else arns}:key/*"
    return key if key.startswith("arn:") else f"{arns}:key/{key}"


def _in_bucket(
    partition: str, purpose: str, at: Location, bucket: str, key: str, actions: tuple[str, ...]
) -> Iterator[_Need]:
    yield _Need(purpose, at, ("s3:ListBucket",), f"arn:{partition}:s3:::{bucket}")
    yield _Need(purpose, at, actions, f"arn:{partition}:s3:::{bucket}/{key}")


def _first(account: Account, where: S3Location) -> str:
    """The key of an object of the channel; a wildcard under its prefix if none can be listed."""
    from botocore.exceptions import ClientError

    try:
        listed = account.clients.s3.list_objects_v2(Bucket=where.bucket, Prefix=where.key, MaxKeys=1)
    except ClientError:
        listed = {}
    return next((str(one["Key"]) for one in listed.get("Contents", [])), where.join("*").key)


def _refused(account: Account, need: _Need) -> list[dict[str, Any]]:
    """The results of the actions that the role's policies do not allow."""
    from botocore.exceptions import ClientError

    pages = account.service("iam").get_paginator("simulate_principal_policy")
    arguments = {"ActionNames": list(need.actions), "ResourceArns": [need.resource]}
    try:
        return [
            one
            for page in pages.paginate(PolicySourceArn=account.plan.spec.role, **arguments)
            for one in page["EvaluationResults"]
            if one["EvalDecision"] != "allowed"
        ]
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            raise NotChecked("there is no such role") from error
        raise


def _why_unknown(result: dict[str, Any], need: _Need) -> str | None:
    """Why the job may be allowed what the simulator refuses; None if it is not."""
    if any(one.get("MissingContextValues") for one in (result, *result.get("ResourceSpecificResults", []))):
        return "they depend on conditions"
    if need.service == "kms" and result["EvalDecision"] == "implicitDeny":
        return "a policy of the key may allow them"
    return None
