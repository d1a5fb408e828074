"""Checks of identity, role, buckets, image and quota."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from smdp_launch.catalog.images import parse_image
from smdp_launch.catalog.placeholders import ACCOUNT
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of, s3_channels
from smdp_launch.planning.plan import Plan
from smdp_launch.request.names import S3Location
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
_MOST_JOBS = 50  # running jobs whose instances are counted


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


def buckets(account: Account) -> Iterator[Problem | str]:
    spec = account.plan.spec
    places: dict[str, tuple[str | int, ...]] = {S3Location.parse(spec.output.s3).bucket: ("output", "s3")}
    for name, uri in s3_channels(account).items():
        places.setdefault(S3Location.parse(uri).bucket, ("channels", name, "s3"))
    if spec.checkpoint is not None:
        places.setdefault(S3Location.parse(spec.checkpoint.s3).bucket, ("checkpoint", "s3"))
    if spec.tracking.tensorboard is not None:
        places.setdefault(S3Location.parse(spec.tracking.tensorboard.s3).bucket, ("tracking", "tensorboard", "s3"))
    unknown = []
    for bucket, at in places.items():
        try:
            yield from _bucket(account, bucket, at)
        except NotChecked:
            unknown.append(bucket)
    if unknown:
        yield f"not checked, no permission for HeadBucket: {', '.join(unknown)}"
    known = [one for one in places if one not in unknown]
    if known:
        yield ", ".join(known)


def _bucket(account: Account, bucket: str, at: tuple[str | int, ...]) -> Iterator[Problem]:
    from botocore.exceptions import ClientError

    region = account.plan.spec.region
    try:
        answer = account.clients.s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        answer, code = error.response, code_of(error)
        if code in ("404", "NoSuchBucket"):
            help_ = f"create it with `aws s3 mb s3://{bucket} --region {region}`, or give one that exists"
            yield Problem(at, f"there is no bucket {bucket}", help_)
            return
        if code not in ("301", "PermanentRedirect"):
            raise NotChecked(code) from error
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    actual = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
    if actual not in (None, region):
        help_ = f"give a bucket of {region}, or `region: {actual}`"
        yield Problem(at, f"the bucket {bucket} is in {actual}, and the job in {region}", help_)


def data(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    channels = s3_channels(account)
    for name, uri in channels.items():
        where = S3Location.parse(uri)
        try:
            listed = account.clients.s3.list_objects_v2(Bucket=where.bucket, Prefix=where.key, MaxKeys=1)
        except ClientError as error:
            if code_of(error) == "NoSuchBucket":
                continue  # the check of the buckets reports it
            raise
        if not listed.get("KeyCount"):
            message = f"there is no object under {uri}"
            yield Problem(("channels", name, "s3"), message, "upload the data, or fix the prefix")
    yield ", ".join(channels) or "no channels from S3"


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


def quota(account: Account) -> Iterator[Problem | str]:
    """The quota of the instance type, or of each of several: SageMaker passes over a type that has none left."""
    resources, spot = account.plan.request["ResourceConfig"], account.plan.spec.spot is not None
    preferences = resources.get("InstancePreferences") or [resources]
    at_a_time = _at_a_time(account.plan)
    wanted = [(str(one["InstanceType"]), int(one["InstanceCount"]) * at_a_time) for one in preferences]
    limits = [_limit(account, _quota_name(kind, spot)) for kind, _ in wanted]
    hosts = _used(account, spot)
    numbers = "; ".join(
        f"{f'{kind}: ' if len(wanted) > 1 else ''}limit {limit}, in use {hosts[kind]}, needed {needed}"
        for (kind, needed), limit in zip(wanted, limits, strict=True)
    )
    if any(hosts[kind] + needed <= limit for (kind, needed), limit in zip(wanted, limits, strict=True)):
        yield numbers
        return
    names = " or ".join(f"'{_quota_name(kind, spot)}'" for kind, _ in wanted)
    types = " or ".join(f"{needed} x {kind}" for kind, needed in wanted)
    help_ = f"request an increase of {names} in Service Quotas (takes days), or wait until other jobs have ended"
    at: Location = ("compute", "instance_count")
    if at_a_time > 1:
        at, types = ("sweep", "parallel"), f"{types}, {at_a_time} trials at a time"
        help_ = f"lower `parallel`, or {help_}"
    yield Problem(at, f"the quota is too small for {types}: {numbers}", help_)


def _at_a_time(plan: Plan) -> int:
    """The number of jobs that the plan runs at a time."""
    if plan.tuning is None:
        return 1
    return int(plan.tuning["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxParallelTrainingJobs"])


def _quota_name(kind: str, spot: bool) -> str:
    return f"{kind} for {'spot ' if spot else ''}training job usage"


def _limit(account: Account, name: str) -> int:
    pages = account.service("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    for page in pages:
        for one in page["Quotas"]:
            if one["QuotaName"] == name:
                return int(one["Value"])
    raise NotChecked(f"Service Quotas does not list {name!r}")


def _used(account: Account, spot: bool) -> Counter[str]:
    """The hosts of the jobs that run, by instance type."""
    sagemaker = account.service("sagemaker")  # this client retries by itself, unlike `clients.sagemaker`
    listed = sagemaker.list_training_jobs(StatusEquals="InProgress", MaxResults=_MOST_JOBS)
    names = [one["TrainingJobName"] for one in listed["TrainingJobSummaries"]]
    jobs = [sagemaker.describe_training_job(TrainingJobName=name) for name in names]
    used = Counter[str]()
    for one in (job["ResourceConfig"] for job in jobs if bool(job.get("EnableManagedSpotTraining")) == spot):
        for kind, count in (("InstanceType", "InstanceCount"), ("SelectedInstanceType", "SelectedInstanceCount")):
            if kind in one:
                used[one[kind]] += int(one.get(count, 0))
    return used
