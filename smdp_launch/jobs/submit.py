"""Submits a plan: uploads the source archive, then sends the request exactly as planned."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from smdp_launch.errors import Refused, ServiceProblem, SmdpError
from smdp_launch.jobs.records.outcome import ENDED
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind, reason
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.interrupted_resume import explain_never_created
from smdp_launch.jobs.transfer.upload import Progress, ignore_progress, upload
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.source.archive import write_archive
from smdp_launch.source.scan import data_files

#: Bytes; larger archives are packed on disk.
_IN_MEMORY = 16 << 20
_NOT_RUNNING = ENDED | {"Stopping"}


def submit(clients: Clients, plan: Plan, progress: Progress = ignore_progress) -> None:
    """Upload the source and create the job. Retries do not create a second job.

    Args:
        progress: called during the upload of the source archive.

    Raises:
        ServiceProblem: the service refused, did not answer, or another job has the name.
        EnvironmentProblem: the credentials have expired.
    """
    send_source(clients, plan, progress)
    create(clients, plan.request)


def send_source(clients: Clients, plan: Plan, progress: Progress = ignore_progress) -> None:
    """Upload the source archive: the first half of `submit`. It creates no job.

    Raises:
        ServiceProblem: S3 refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    what = "the source archive could not be uploaded"
    call_with_retries(clients, what, lambda: _upload_source(clients, plan, progress), is_transfer=True)


def require_one_job(plan: Plan) -> None:
    """Raises:
    Refused: the plan is that of a sweep, which these functions do not create.
    """
    if plan.tuning is not None:
        raise Refused(
            f"{plan.job_file} has a sweep, which only the command `smdp-launch launch` starts; to run one job, add the "
            "setting `sweep=null`"
        )


def create(clients: Clients, request: Request) -> None:
    """Create the job of ``request``, which has the tag of its plan.

    If an answer is lost, the retry is refused because the name is in use. The job is ours if it has that tag.

    Raises:
        ServiceProblem: the service refused, did not answer, or another job has the name.
        EnvironmentProblem: the credentials have expired.
        Interrupted: between two tries; the job may exist.
    """
    from botocore.exceptions import ClientError

    job = request["TrainingJobName"]

    def call() -> None:
        try:
            clients.sagemaker.create_training_job(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceInUse" or not _is_ours(clients, request):
                raise

    try:
        call_with_retries(clients, f"job {job} could not be created", call)
    except SmdpError as error:
        if error_kind(error.__cause__) is ErrorKind.FINAL:
            raise
        raise type(error)(f"{error}; run smdp-launch status {job} to see whether the job exists") from error


def stop(clients: Clients, job: str) -> str:
    """Request the service to stop ``job``. Return its status then; a job that has ended is no error.

    Raises:
        ServiceProblem: the service refused, did not answer, or does not know the job.
        EnvironmentProblem: the credentials have expired.
    """
    from botocore.exceptions import ClientError

    def status() -> str:
        return str(clients.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"])

    def call() -> str:
        try:
            clients.sagemaker.stop_training_job(TrainingJobName=job)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            now = status()  # raises if there is no such job
            if now not in _NOT_RUNNING:
                raise
            return now
        return "Stopping"

    def already_done() -> str | None:
        now = status()
        return now if now in _NOT_RUNNING else None

    with explain_never_created(job):
        return call_with_retries(clients, f"job {job} could not be stopped", call, already_done)


def _upload_source(clients: Clients, plan: Plan, progress: Progress) -> None:
    where = source_location(plan.spec.output.s3, plan.job)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        write_archive(plan.source, packed)
        size = packed.tell()
        packed.seek(0)
        upload(clients.s3, packed, size, where, progress)


def seed(clients: Clients, plan: Plan) -> None:
    """Create the buckets that the job names, and upload the local data of its channels.

    Only for the local cloud, whose buckets are empty. Files of an earlier run at a channel's location are deleted, so
    that the job reads the current local data only.
    """
    data: Mapping[str, Path] = plan.local.data if plan.local is not None else {}
    locations = {
        one["ChannelName"]: S3Location.parse(one["DataSource"]["S3DataSource"]["S3Uri"])
        for one in plan.request.get("InputDataConfig", [])
        if "S3DataSource" in one["DataSource"]
    }
    buckets = {one.bucket for one in locations.values()} | {S3Location.parse(plan.spec.output.s3).bucket}
    if plan.spec.checkpoint is not None:
        buckets.add(S3Location.parse(plan.spec.checkpoint.s3).bucket)
    if plan.spec.tracking.tensorboard is not None:
        buckets.add(S3Location.parse(plan.spec.tracking.tensorboard.s3).bucket)

    def upload_data() -> None:
        for bucket in sorted(buckets):
            clients.s3.create_bucket(Bucket=bucket)
        for name in sorted(data.keys() & locations.keys()):
            _replace(clients, locations[name], data[name])

    call_with_retries(clients, "the local cloud could not take the channels' data", upload_data, is_transfer=True)


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


def _is_ours(clients: Clients, request: Request) -> bool:
    """Whether the existing job is of this launch.

    Raises:
        ServiceProblem: the credentials may not read its description or tags.
    """
    from botocore.exceptions import ClientError

    job = request["TrainingJobName"]
    try:
        arn = clients.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobArn"]
        pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
        tags = [tag for page in pages for tag in page["Tags"] if tag["Key"] == PLAN_TAG]
        return bool(tags) and tags == [tag for tag in request["Tags"] if tag["Key"] == PLAN_TAG]
    except ClientError as error:
        if error_kind(error) is not ErrorKind.FINAL:
            raise
        raise ServiceProblem(
            f"job {job} exists, but it is unknown whether this launch created it ({reason(error)}): smdp-launch status "
            f"{job} shows it, smdp-launch stop {job} stops it"
        ) from error
