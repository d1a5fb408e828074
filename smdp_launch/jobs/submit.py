"""A plan to a running job: the source archive first, then the request, exactly as planned."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from smdp_launch.errors import ServiceProblem, SmdpError
from smdp_launch.jobs.records.outcome import ENDED
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import Trouble, reason, trouble
from smdp_launch.jobs.service.retry import ask
from smdp_launch.jobs.status.never_created import never_created_told
from smdp_launch.jobs.transfer.upload import Progress, unseen, upload
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.source.archive import write_archive
from smdp_launch.source.scan import data_files

#: Larger archives go to disk while they are packed.
_IN_MEMORY = 16 << 20
_NOT_RUNNING = ENDED | {"Stopping"}


def submit(clients: Clients, plan: Plan, progress: Progress = unseen) -> None:
    """Upload the source and create the job, once, however often the service has to be asked.

    Args:
        progress: told of the source archive's upload.

    Raises:
        ServiceProblem: the service refused, did not answer, or the name belongs to another job.
        EnvironmentProblem: the credentials have expired.
    """
    send_source(clients, plan, progress)
    create(clients, plan.request)


def send_source(clients: Clients, plan: Plan, progress: Progress = unseen) -> None:
    """Upload the source archive: the first half of `submit`, before which no job is there.

    Raises:
        ServiceProblem: S3 refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    doing = "the source archive could not be uploaded"
    ask(clients, doing, lambda: _upload_source(clients, plan, progress), is_transfer=True)


def create(clients: Clients, request: Request) -> None:
    """Create the job of ``request``, which carries the tag of its plan.

    An answer that is lost makes us ask again, and the service then says that the name is taken: by our own job, if
    that has the tag.

    Raises:
        ServiceProblem: the service refused, did not answer, or the name belongs to another job.
        EnvironmentProblem: the credentials have expired.
        Interrupted: between two tries, so that the job may be there.
    """
    from botocore.exceptions import ClientError

    job = request["TrainingJobName"]

    def question() -> None:
        try:
            clients.sagemaker.create_training_job(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceInUse" or not _is_known_as_ours(clients, request):
                raise

    try:
        ask(clients, f"job {job} could not be created", question)
    except SmdpError as error:
        if trouble(error.__cause__) is Trouble.FINAL:
            raise
        raise type(error)(f"{error}; smdp-launch status {job} tells whether it is there all the same") from error


def stop(clients: Clients, job: str) -> str:
    """Ask the service to stop ``job``, once; its status then. One that has ended meanwhile is fine.

    Raises:
        ServiceProblem: the service refused, did not answer, or does not know the job.
        EnvironmentProblem: the credentials have expired.
    """
    from botocore.exceptions import ClientError

    def status() -> str:
        return str(clients.sagemaker.describe_training_job(TrainingJobName=job)["TrainingJobStatus"])

    def question() -> str:
        try:
            clients.sagemaker.stop_training_job(TrainingJobName=job)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            now = status()  # which refuses in its turn if there is no such job
            if now not in _NOT_RUNNING:
                raise
            return now
        return "Stopping"

    def unsure() -> str | None:
        now = status()
        return now if now in _NOT_RUNNING else None

    with never_created_told(job):
        return ask(clients, f"job {job} could not be stopped", question, unsure)


def _upload_source(clients: Clients, plan: Plan, progress: Progress) -> None:
    where = source_location(plan.spec.output.s3, plan.job)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        write_archive(plan.source, packed)
        size = packed.tell()
        packed.seek(0)
        upload(clients.s3, packed, size, where, progress)


def seed(clients: Clients, plan: Plan) -> None:
    """Make the buckets that the job names and put its channels' data where the job will look for it.

    Only for the local cloud, whose buckets are empty: on AWS the data is there already. What an earlier run left
    under a channel's location goes, so that the job sees the data of this machine and no other.
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

    def put() -> None:
        for bucket in sorted(buckets):
            clients.s3.create_bucket(Bucket=bucket)
        for name in sorted(data.keys() & locations.keys()):
            _replace(clients, locations[name], data[name])

    ask(clients, "the local cloud could not take the channels' data", put, is_transfer=True)


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


def _is_known_as_ours(clients: Clients, request: Request) -> bool:
    """Raises:
    ServiceProblem: whose it is may not be asked.
    """
    from botocore.exceptions import ClientError

    try:
        return _is_ours(clients, request)
    except ClientError as error:
        if trouble(error) is not Trouble.FINAL:
            raise
        job = request["TrainingJobName"]
        raise ServiceProblem(
            f"there is a job {job}, but not whether it is of this launch ({reason(error)}): smdp-launch status {job} "
            f"shows it, smdp-launch stop {job} stops it"
        ) from error


def _is_ours(clients: Clients, request: Request) -> bool:
    described = clients.sagemaker.describe_training_job(TrainingJobName=request["TrainingJobName"])
    pages = clients.sagemaker.get_paginator("list_tags").paginate(ResourceArn=described["TrainingJobArn"])
    tags = [tag for page in pages for tag in page["Tags"] if tag["Key"] == PLAN_TAG]
    return bool(tags) and tags == [tag for tag in request["Tags"] if tag["Key"] == PLAN_TAG]
