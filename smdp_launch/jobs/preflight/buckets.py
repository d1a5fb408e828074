"""Checks of the buckets and of the data in them: that a bucket exists, its region, and objects below each prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from smdp_launch.jobs.preflight.check import Account, NotChecked, code_of, refusal, s3_channels
from smdp_launch.request.names import S3Location
from smdp_launch.rules.base.facts import Problem


def buckets(account: Account) -> Iterator[Problem | str]:
    spec = account.plan.spec
    places: dict[str, tuple[str | int, ...]] = {S3Location.parse(spec.output.s3).bucket: ("output", "s3")}
    for name, uri in s3_channels(account).items():
        places.setdefault(S3Location.parse(uri).bucket, ("channels", name, "s3"))
    if spec.checkpoint is not None:
        places.setdefault(S3Location.parse(spec.checkpoint.s3).bucket, ("checkpoint", "s3"))
    if spec.tracking.tensorboard is not None:
        places.setdefault(S3Location.parse(spec.tracking.tensorboard.s3).bucket, ("tracking", "tensorboard", "s3"))
    unknown: dict[str, str] = {}
    for bucket, at in places.items():
        try:
            yield from _bucket(account, bucket, at)
        except NotChecked as reason:
            unknown[bucket] = str(reason)
    if len(unknown) == len(places):
        raise NotChecked("; ".join(dict.fromkeys(unknown.values())))
    yield from _unchecked(unknown)
    yield ", ".join(one for one in places if one not in unknown)


def _unchecked(reasons: Mapping[str, str]) -> Iterator[str]:
    """A text for each reason, with the names that are not checked for this reason."""
    for reason in dict.fromkeys(reasons.values()):
        yield f"not checked, {reason}: {', '.join(name for name, one in reasons.items() if one == reason)}"


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
            raise NotChecked(refusal(error)) from error
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    actual = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
    if actual not in (None, region):
        help_ = f"give a bucket of {region}, or `region: {actual}`"
        yield Problem(at, f"the bucket {bucket} is in {actual}, and the job in {region}", help_)


def data(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    channels = s3_channels(account)
    if not channels:
        yield "no channels from S3"
        return
    unknown: dict[str, str] = {}
    complete = []
    for name, uri in channels.items():
        where = S3Location.parse(uri)
        try:
            listed = account.clients.s3.list_objects_v2(Bucket=where.bucket, Prefix=where.key, MaxKeys=1)
        except ClientError as error:
            if code_of(error) == "NoSuchBucket":
                continue  # the check of the buckets reports it
            unknown[name] = refusal(error)
            continue
        if not listed.get("KeyCount"):
            message = f"there is no object under {uri}"
            yield Problem(("channels", name, "s3"), message, "upload the data, or fix the prefix")
        else:
            complete.append(name)
    if len(unknown) == len(channels):
        raise NotChecked("; ".join(dict.fromkeys(unknown.values())))
    yield from _unchecked(unknown)
    if complete:
        yield ", ".join(complete)
