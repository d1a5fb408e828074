"""Submits a plan: uploads the source archive, then sends the request exactly as planned."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from smdp_launch.errors import Refused, ServiceProblem, SmdpError
from smdp_launch.jobs.checkpoints.stored import prefix_of
from smdp_launch.jobs.records.history import record_end
from smdp_launch.jobs.records.outcome import ENDED, NO_JOB
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind, reason
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.interrupted_resume import explain_unknown
from smdp_launch.jobs.transfer.upload import Progress, encryption, ignore_progress, upload
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.source.archive import write_archive
from smdp_launch.source.scan import data_files

#: Bytes; larger archives are packed on disk.
_IN_MEMORY = 16 << 20
_NOT_RUNNING = ENDED | {"Stopping"}
#: Metadata of an object that a local run uploaded as data of a channel: the channel's name.
_CHANNEL = "smdp-channel"


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
            f"{plan.job_file} has a sweep, which launch_sweep() and the command `smdp-launch launch` start; to run one "
            "job, add the setting `sweep=null`"
        )


def create(clients: Clients, request: Request) -> None:
    """Create the job of ``request``, as `create_once`.

    Raises:
        ServiceProblem: the service refused, did not answer, or another job has the name.
        EnvironmentProblem: the credentials have expired.
        Interrupted: between two tries; the job may exist.
    """
    job = request["TrainingJobName"]

    # A retry may have other clients, with new credentials.
    def call() -> None:
        clients.sagemaker.create_training_job(**request)

    def arn() -> str:
        return str(clients.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobArn"])

    create_once(clients, "job", job, call, arn, request["Tags"])


def create_once(
    clients: Clients,
    kind: Literal["job", "sweep"],
    name: str,
    call: Callable[[], object],
    arn: Callable[[], str],
    tags: Sequence[Mapping[str, str]],
) -> None:
    """Create something that has the tag of its plan, with retries that do not create a second one.

    If an answer is lost, the retry is refused because the name is in use. What exists is ours if it has that tag.

    A refusal is recorded in the history as the end of the launch, which costs nothing, unless an earlier try may have
    created it.

    Args:
        call: makes the request, with the clients of that moment.
        arn: describes what exists, and returns its ARN.
        tags: those of the request.

    Raises:
        ServiceProblem: the service refused, did not answer, or something else has the name.
        EnvironmentProblem: the credentials have expired.
        Interrupted: between two tries; it may exist.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    may_exist = False

    def attempt() -> None:
        nonlocal may_exist
        try:
            call()
        except (ClientError, BotoCoreError) as error:
            may_exist = may_exist or _may_have_created(error)
            if _is_name_in_use(error) and _is_ours(clients, kind, name, arn, tags):
                return
            if not may_exist and error_kind(error) is ErrorKind.FINAL:
                record_end(name, NO_JOB, datetime.now(timezone.utc))
            raise

    try:
        call_with_retries(clients, f"{kind} {name} could not be created", attempt)
    except SmdpError as error:
        if error_kind(error.__cause__) is ErrorKind.FINAL:
            raise
        text = f"{error}; run smdp-launch status {name} to see whether the {kind} exists"
        raise type(error)(text) from error.__cause__


def _may_have_created(error: Exception) -> bool:
    """Whether what a failed call creates may exist: its answer was lost, now or in one of botocore's own tries."""
    retried = getattr(error, "response", {}).get("ResponseMetadata", {}).get("RetryAttempts", 0)
    return bool(retried) or _is_name_in_use(error) or error_kind(error) is ErrorKind.TEMPORARY


def _is_name_in_use(error: Exception) -> bool:
    return bool(getattr(error, "response", {}).get("Error", {}).get("Code") == "ResourceInUse")


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

    with explain_unknown(job):
        return call_with_retries(clients, f"job {job} could not be stopped", call, already_done)


def _upload_source(clients: Clients, plan: Plan, progress: Progress) -> None:
    where = source_location(plan.spec.output.s3, plan.job)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        write_archive(plan.source, packed)
        size = packed.tell()
        packed.seek(0)
        upload(clients.s3, packed, size, where, progress, encryption(plan.spec.encryption.output_key))


def seed(clients: Clients, plan: Plan) -> None:
    """Create the buckets that the job names, and upload the local data of its channels.

    Only for the local cloud, whose buckets are empty. Files of an earlier run at a channel's location are deleted, so
    that the job reads the current local data only. What lies below it and is no data of this channel stays: results,
    checkpoints and other channels. Of a whole bucket, which may have the results of any job, only what an earlier run
    uploaded for the channel is deleted.
    """
    data: Mapping[str, Path] = plan.local.data if plan.local is not None else {}
    locations = {
        one["ChannelName"]: S3Location.parse(one["DataSource"]["S3DataSource"]["S3Uri"])
        for one in plan.request.get("InputDataConfig", [])
        if "S3DataSource" in one["DataSource"]
    }
    written = [plan.spec.output.s3]
    if plan.spec.checkpoint is not None:
        written.append(plan.spec.checkpoint.s3)
    if plan.spec.tracking.tensorboard is not None:
        written.append(plan.spec.tracking.tensorboard.s3)
    outputs = [S3Location.parse(one) for one in written]
    buckets = {one.bucket for one in (*locations.values(), *outputs)}

    def upload_data() -> None:
        for bucket in sorted(buckets):
            clients.s3.create_bucket(Bucket=bucket)
        for name in sorted(data.keys() & locations.keys()):
            others = [one for one in locations.values() if prefix_of(one) != prefix_of(locations[name])]
            _replace(clients, name, locations[name], data[name], [*outputs, *others])

    call_with_retries(clients, "the local cloud could not take the channels' data", upload_data, is_transfer=True)


def _replace(clients: Clients, channel: str, where: S3Location, path: Path, kept: Sequence[S3Location]) -> None:
    """Args:
    kept: if one of these is below ``where``, nothing of it is deleted that is not data of the channel.
    """
    prefix = prefix_of(where)

    def is_data(key: str) -> bool:
        if prefix and not key.startswith(below):
            return True
        found = clients.s3.head_object(Bucket=where.bucket, Key=key)
        return bool(found["Metadata"].get(_CHANNEL) == channel)

    wanted = {where.join(name).key: file for name, file in data_files(path)}
    below = tuple(prefix_of(one) for one in kept if one.bucket == where.bucket and prefix_of(one).startswith(prefix))
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=where.bucket, Prefix=prefix)
    present = [one["Key"] for page in pages for one in page.get("Contents", [])]
    for key in present:
        if key not in wanted and is_data(key):
            clients.s3.delete_object(Bucket=where.bucket, Key=key)
    for key, file in wanted.items():
        with file.open("rb") as body:
            clients.s3.put_object(Bucket=where.bucket, Key=key, Body=body, Metadata={_CHANNEL: channel})


def _is_ours(
    clients: Clients, kind: str, name: str, arn: Callable[[], str], wanted: Sequence[Mapping[str, str]]
) -> bool:
    """Whether what exists is of this launch.

    Raises:
        ServiceProblem: the credentials may not read its description or tags.
    """
    from botocore.exceptions import ClientError

    try:
        pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn())
        tags = [tag for page in pages for tag in page["Tags"] if tag["Key"] == PLAN_TAG]
        return bool(tags) and tags == [tag for tag in wanted if tag["Key"] == PLAN_TAG]
    except ClientError as error:
        if error_kind(error) is not ErrorKind.FINAL:
            raise
        raise ServiceProblem(
            f"{kind} {name} exists, but it is unknown whether this launch created it ({reason(error)}): "
            f"smdp-launch status {name} shows it, smdp-launch stop {name} stops it"
        ) from error
