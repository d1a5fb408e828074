"""The results of a job: the objects below its output location in S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from smdp_launch.errors import ExitCode, NoResults, Refused
from smdp_launch.jobs.records.outcome import ENDED, WROTE_NOTHING, Outcome, outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.interrupted_resume import explain_unknown
from smdp_launch.request.names import S3Location
from smdp_launch.source.file_names import BadNameError, checked_name


@dataclass(frozen=True)
class Result:
    """One object. ``name`` is its path below the job's output location, such as ``model.tar.gz``."""

    name: PurePosixPath
    where: S3Location
    size: int
    etag: str


@dataclass(frozen=True)
class Results:
    """The results of a job that has ended: at least one object."""

    job: str
    outcome: Outcome
    objects: tuple[Result, ...]


def find_results(clients: Clients, job: str) -> Results:
    """Get the output location of ``job`` from the service, and list its objects.

    Raises:
        ServiceProblem: the service does not know the job, refused, or did not answer.
        Refused: the job has not ended, or an object's key leads out of the download folder.
        NoResults: there is no object.
    """
    with explain_unknown(job):
        what = f"job {job} cannot be described"
        described = call_with_retries(
            clients, what, lambda: clients.sagemaker.describe_training_job(TrainingJobName=job)
        )
    if described["TrainingJobStatus"] not in ENDED:
        status = described.get("SecondaryStatus", described["TrainingJobStatus"])
        raise Refused(f"{job} still runs ({status}): download its results when it has ended")
    what = f"the results of {job} cannot be listed"
    objects = call_with_retries(clients, what, lambda: tuple(_objects(clients, described)))
    if not objects:
        raise _no_results(job, outcome(described))
    return Results(job, outcome(described), objects)


def _objects(clients: Clients, described: Mapping[str, Any]) -> Iterator[Result]:
    output = S3Location.parse(described["OutputDataConfig"]["S3OutputPath"])
    below = output.join(described["TrainingJobName"], "output")
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=below.bucket, Prefix=f"{below.key}/")
    for page in pages:
        for one in page.get("Contents", []):
            key = str(one["Key"])
            if not key.endswith("/"):
                yield Result(_name(key, below), S3Location(below.bucket, key), int(one["Size"]), str(one["ETag"]))


def _name(key: str, below: S3Location) -> PurePosixPath:
    try:
        return checked_name(key.removeprefix(f"{below.key}/"))
    except BadNameError as error:
        raise Refused(f"the object {key!r} {error}: download it yourself with another tool") from None


def _no_results(job: str, ended: Outcome) -> NoResults:
    if ended.exit_code is ExitCode.OK:
        return NoResults(f"{job} completed without results: {WROTE_NOTHING}", ExitCode.REFUSED)
    reason = f": {ended.reason.splitlines()[0]}" if ended.reason else ""
    return NoResults(f"{job} {ended.summary} without results to download{reason}", ended.exit_code)
