"""A plan to a running job: the source archive first, then the request, exactly as planned."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.clients import Clients
from smdp_launch.jobs.upload import Progress, unseen, upload
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.source.archive import write_archive
from smdp_launch.source.scan import data_files

#: Larger archives go to disk while they are packed.
_IN_MEMORY = 16 << 20


def submit(clients: Clients, plan: Plan, progress: Progress = unseen) -> None:
    """Upload the source and create the job.

    Args:
        progress: told of the source archive's upload.

    Raises:
        ServiceProblem: the service refused, or the name belongs to another job.
    """
    with told("the source archive could not be uploaded"):
        upload_source(clients, plan, progress)
    from botocore.exceptions import ClientError

    with told(f"job {plan.job} could not be created"):
        try:
            clients.sagemaker.create_training_job(**plan.request)
        except ClientError as error:
            # An answer that was lost makes the client ask again, and the service says that the name is taken.
            if error.response["Error"]["Code"] != "ResourceInUse" or not _is_ours(clients, plan):
                raise


def stop(clients: Clients, job: str) -> None:
    """Ask the service to stop ``job``; one that has ended meanwhile is fine."""
    from botocore.exceptions import ClientError

    with told(f"job {job} could not be stopped"):
        try:
            clients.sagemaker.stop_training_job(TrainingJobName=job)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise


def upload_source(clients: Clients, plan: Plan, progress: Progress = unseen) -> None:
    where = source_location(plan.spec.output.s3, plan.job)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        write_archive(plan.source, packed)
        size = packed.tell()
        packed.seek(0)
        upload(clients.s3, packed, size, where, progress)


def seed(clients: Clients, plan: Plan, data: Mapping[str, Path]) -> None:
    """Make the buckets that the job names and put its channels' data where the job will look for it.

    Only for the local cloud, whose buckets are empty: on AWS the data is there already. What an earlier run left
    under a channel's location goes, so that the job sees the data of this machine and no other.
    """
    locations = {
        one["ChannelName"]: S3Location.parse(one["DataSource"]["S3DataSource"]["S3Uri"])
        for one in plan.request.get("InputDataConfig", [])
    }
    buckets = {one.bucket for one in locations.values()} | {S3Location.parse(plan.spec.output.s3).bucket}
    if plan.spec.checkpoint is not None:
        buckets.add(S3Location.parse(plan.spec.checkpoint.s3).bucket)
    with told("the local cloud could not take the channels' data"):
        for bucket in sorted(buckets):
            clients.s3.create_bucket(Bucket=bucket)
        for name, path in data.items():
            _replace(clients, locations[name], path)


def _replace(clients: Clients, where: S3Location, path: Path) -> None:
    wanted = {where.join(name).key: file for name, file in data_files(path)}
    pages = clients.s3.get_paginator("list_objects_v2").paginate(
        Bucket=where.bucket, Prefix=f"{where.key.rstrip('/')}/"
    )
    present = [one["Key"] for page in pages for one in page.get("Contents", [])]
    for key in present:
        if key not in wanted:
            clients.s3.delete_object(Bucket=where.bucket, Key=key)
    for key, file in wanted.items():
        with file.open("rb") as body:
            clients.s3.put_object(Bucket=where.bucket, Key=key, Body=body)


def _is_ours(clients: Clients, plan: Plan) -> bool:
    described = clients.sagemaker.describe_training_job(TrainingJobName=plan.job)
    tags: list[dict[str, Any]] = clients.sagemaker.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    return {"Key": PLAN_TAG, "Value": plan.hash} in tags


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn botocore's errors into ours, with ``what`` in front."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        answer = error.response["Error"]
        raise ServiceProblem(f"{what}: {answer.get('Code')}: {answer.get('Message')}") from error
    except BotoCoreError as error:
        raise ServiceProblem(f"{what}: {error}") from error
