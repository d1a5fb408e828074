"""Check of what the job's role may do, as IAM's own simulation of its policies says.

The simulation knows neither the policies of buckets and repositories nor what conditions will see. It takes a resource
literally, also a `*` in it, so it is asked about what this very job will touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from smdp_launch.catalog.images import parse_image
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of, s3_channels
from smdp_launch.request.build import checkpoint_location
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.rules.base.facts import Finding

_READ = ("s3:GetObject",)
_WRITE = ("s3:PutObject",)
_KEEP = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_LOGS = ("logs:CreateLogStream", "logs:PutLogEvents")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"


@dataclass(frozen=True)
class _Need:
    """Actions that the job does on a resource, for the field `at`; `purpose` says in words what it does by them."""

    purpose: str
    at: Location
    actions: tuple[str, ...]
    resource: str


def role_permissions(account: Account) -> Iterator[Finding | str]:
    role = account.plan.spec.role
    name, unsure, well = role.rpartition("/")[2], [], True
    needs = list(_needs(account))
    for need in needs:
        denied, unknown = _simulated(account, need)
        unsure += unknown
        well = well and not denied
        if denied:
            help_ = f"allow {', '.join(denied)} to the role {name}; what a bucket's own policy allows is not seen here"
            yield Finding(need.at, f"the role {name} may not {', '.join(denied)} on {need.resource}", help_)
    if unsure:
        yield f"not checked, conditions decide: {', '.join(dict.fromkeys(unsure))}"
    elif well:
        yield ", ".join(dict.fromkeys(one.purpose for one in needs))


def _needs(account: Account) -> Iterator[_Need]:
    spec, job = account.plan.spec, account.plan.job
    partition, owner = spec.role.split(":")[1], spec.role.split(":")[4]
    bucket = partial(_in_bucket, partition)
    for name, uri in s3_channels(account).items():
        where = S3Location.parse(uri)
        yield from bucket("reads the data", ("channels", name, "s3"), where.bucket, _first(account, where), _READ)
    # The source archive lies beside the output.
    source = source_location(spec.output.s3, job)
    yield from bucket("writes the output", ("output", "s3"), source.bucket, source.key, _READ)
    where = S3Location.parse(spec.output.s3).join(job, "output", "model.tar.gz")
    yield _Need("writes the output", ("output", "s3"), _WRITE, f"arn:{partition}:s3:::{where.bucket}/{where.key}")
    kept = checkpoint_location(spec, job)
    if kept is not None:
        where = S3Location.parse(kept).join("checkpoint")
        yield from bucket("keeps checkpoints", ("checkpoint", "s3"), where.bucket, where.key, _KEEP)
    image = parse_image(str(account.plan.request["AlgorithmSpecification"]["TrainingImage"]))
    if image is not None and image.account is not None:
        yield _Need("pulls the image", ("image",), ("ecr:GetAuthorizationToken",), "*")
        repository = f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"
        yield _Need("pulls the image", ("image",), _PULL, repository)
    group = f"arn:{partition}:logs:{spec.region}:{owner}:log-group:{_LOG_GROUP}"
    yield _Need("writes logs", ("role",), ("logs:CreateLogGroup",), f"{group}:*")
    yield _Need("writes logs", ("role",), _LOGS, f"{group}:log-stream:{job}/algo-1")


def _in_bucket(
    partition: str, purpose: str, at: Location, bucket: str, key: str, actions: tuple[str, ...]
) -> Iterator[_Need]:
    yield _Need(purpose, at, ("s3:ListBucket",), f"arn:{partition}:s3:::{bucket}")
    yield _Need(purpose, at, actions, f"arn:{partition}:s3:::{bucket}/{key}")


def _first(account: Account, where: S3Location) -> str:
    """The key of an object of the channel; any under its prefix where none can be seen."""
    from botocore.exceptions import ClientError

    try:
        found = account.clients.s3.list_objects_v2(Bucket=where.bucket, Prefix=where.key, MaxKeys=1)
    except ClientError:
        found = {}
    return next((str(one["Key"]) for one in found.get("Contents", [])), where.join("*").key)


def _simulated(account: Account, need: _Need) -> tuple[list[str], list[str]]:
    """The actions that are denied, and those that are unless conditions say otherwise which only the job will know."""
    from botocore.exceptions import ClientError

    pages = account.service("iam").get_paginator("simulate_principal_policy")
    asked = {"ActionNames": list(need.actions), "ResourceArns": [need.resource]}
    try:
        found = [
            one
            for page in pages.paginate(PolicySourceArn=account.plan.spec.role, **asked)
            for one in page["EvaluationResults"]
        ]
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            raise NotChecked("there is no such role") from error
        raise
    refused = [one for one in found if one["EvalDecision"] != "allowed"]
    return _names(refused, conditional=False), _names(refused, conditional=True)


def _names(results: list[dict[str, Any]], *, conditional: bool) -> list[str]:
    return [str(one["EvalActionName"]) for one in results if _is_conditional(one) == conditional]


def _is_conditional(result: dict[str, Any]) -> bool:
    """IAM names the keys that it missed with the resource where it was asked about resources, else with the action."""
    return any(one.get("MissingContextValues") for one in (result, *result.get("ResourceSpecificResults", [])))
