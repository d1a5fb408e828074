"""Checks the permissions of the job's role with IAM's policy simulator.

The simulator knows neither the policies of buckets and repositories nor the values that conditions will have. It takes
a resource literally, also a `*` in it, so it gets the names that this job will use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from smdp_launch.catalog.images import parse_image
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


@dataclass(frozen=True)
class _Need:
    """Actions that the job needs on a resource for the field `at`; `purpose` describes them for the user."""

    purpose: str
    at: Location
    actions: tuple[str, ...]
    resource: str


def role_permissions(account: Account) -> Iterator[Problem | str]:
    role = account.plan.spec.role
    name, unknown, is_allowed = role.rpartition("/")[2], [], True
    needs = list(_needs(account))
    for need in needs:
        denied, conditional = _simulate(account, need)
        unknown += conditional
        is_allowed = is_allowed and not denied
        if denied:
            help_ = f"allow {', '.join(denied)} to the role {name}; this check does not see a bucket's own policy"
            yield Problem(need.at, f"the role {name} may not {', '.join(denied)} on {need.resource}", help_)
    if unknown:
        yield f"not checked, they depend on conditions: {', '.join(dict.fromkeys(unknown))}"
    elif is_allowed:
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


def _simulate(account: Account, need: _Need) -> tuple[list[str], list[str]]:
    """The denied actions, and those that are denied only because the simulator does not know a condition's value."""
    from botocore.exceptions import ClientError

    pages = account.service("iam").get_paginator("simulate_principal_policy")
    arguments = {"ActionNames": list(need.actions), "ResourceArns": [need.resource]}
    try:
        results = [
            one
            for page in pages.paginate(PolicySourceArn=account.plan.spec.role, **arguments)
            for one in page["EvaluationResults"]
        ]
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            raise NotChecked("there is no such role") from error
        raise
    refused = [one for one in results if one["EvalDecision"] != "allowed"]
    return _names(refused, conditional=False), _names(refused, conditional=True)


def _names(results: list[dict[str, Any]], *, conditional: bool) -> list[str]:
    return [str(one["EvalActionName"]) for one in results if _is_conditional(one) == conditional]


def _is_conditional(result: dict[str, Any]) -> bool:
    """Whether IAM names missing condition keys. They are in the results of the resources, or of the action itself."""
    return any(one.get("MissingContextValues") for one in (result, *result.get("ResourceSpecificResults", [])))
