"""How a job ended. Completed, failed, stopped and out of time are different things with exit codes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.lines import NEVER_ACCEPTED
from smdp_launch.plain_text import plain_lines
from smdp_launch.request.names import S3Location

ENDED = frozenset({"Completed", "Failed", "Stopped", "Deleting"})

_STOPPED = {
    "MaxRuntimeExceeded": (ExitCode.MAX_RUN_TIME, "stopped at its maximum run time"),
    "MaxWaitTimeExceeded": (ExitCode.SPOT_GAVE_UP, "stopped: no spot capacity within the maximum wait"),
    "Interrupted": (ExitCode.SPOT_GAVE_UP, "stopped: its spot capacity was taken away"),
}


@dataclass(frozen=True)
class Outcome:
    """Args:
    status: the service's TrainingJobStatus.
    summary: one line of text.
    reason: the whole FailureReason without terminal control sequences; empty unless the job failed.
    model: S3 URI of model.tar.gz, if there is one.
    training_seconds, billable_seconds: as the service counts them; None if the job never trained.
    checkpoints: S3 location of its checkpoints, if it has one.
    instance_type: the type that the job got; None if it got none of several types.
    wrote_nothing: it is known that the job completed without a model and without other outputs, and it keeps no
        checkpoints.
    saved_nothing: it is known that there are no files at its location of checkpoints.
    """

    status: str
    exit_code: ExitCode
    summary: str
    reason: str = ""
    model: str | None = None
    training_seconds: int | None = None
    billable_seconds: int | None = None
    checkpoints: str | None = None
    instance_type: str | None = None
    wrote_nothing: bool = False
    saved_nothing: bool = False

    @property
    def can_resume(self) -> bool:
        """Whether another job can continue from its checkpoints, as far as is known."""
        return self.status != "Completed" and self.checkpoints is not None and not self.saved_nothing


#: Why a completed job has no results.
WROTE_NOTHING = "its script wrote nothing to SM_MODEL_DIR or SM_OUTPUT_DATA_DIR"
#: In the description of a job without results or without checkpoints; DescribeTrainingJob's answer has no such keys.
_NO_RESULTS = "SmdpNoResults"
_NO_CHECKPOINTS = "SmdpNoCheckpoints"

#: Of a launch whose job or sweep its service refused to create.
NO_JOB = Outcome(NEVER_ACCEPTED, ExitCode.SERVICE, "never accepted by the service", billable_seconds=0)


def with_files_found(client: Callable[[str], Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    """DescribeTrainingJob's answer, and what S3 has of a job that has ended: the URI of a model that does not exist is
    left out, because the service gives one for every job. If S3 refuses or does not answer, the files count as
    existing.

    ``client`` returns a client that gives up soon, so that a bucket that does not answer does not delay a job's end.
    """
    if described["TrainingJobStatus"] not in ENDED:
        return described
    return _with_checkpoints_found(client, _with_model_found(client, described))


def _with_checkpoints_found(client: Callable[[str], Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError

    location = described.get("CheckpointConfig", {}).get("S3Uri")
    if not location or described["TrainingJobStatus"] == "Completed":
        return described
    place = S3Location.parse(location)
    prefix = f"{place.key.rstrip('/')}/" if place.key else ""
    try:
        # Two: the S3 console marks a folder with an object whose key ends with a slash.
        listed = client("s3").list_objects_v2(Bucket=place.bucket, Prefix=prefix, MaxKeys=2)
    except (BotoCoreError, ClientError):
        return described
    has_files = any(not str(one["Key"]).endswith("/") for one in listed.get("Contents", ()))
    is_known = has_files or not listed.get("IsTruncated")
    return {**described, _NO_CHECKPOINTS: is_known and not has_files}


def _with_model_found(client: Callable[[str], Any], described: Mapping[str, Any]) -> Mapping[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError

    address = described.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    if not address:
        return described
    place = S3Location.parse(address)
    before, folder, _ = place.key.partition(f"/{described['TrainingJobName']}/output/")
    try:
        listed = client("s3").list_objects_v2(Bucket=place.bucket, Prefix=before + folder)
        keys = [str(one["Key"]) for one in listed.get("Contents", ())]
        if listed.get("IsTruncated") and not any(one.startswith(place.key) for one in keys):
            # The other outputs fill the answer; their names may come before the model's.
            listed = client("s3").list_objects_v2(Bucket=place.bucket, Prefix=place.key, MaxKeys=1)
            keys += [str(one["Key"]) for one in listed.get("Contents", ())]
    except (BotoCoreError, ClientError):
        return described
    if any(one.startswith(place.key) for one in keys):
        return described
    return {**described, "ModelArtifacts": {}, _NO_RESULTS: bool(folder) and not keys}


def outcome(described: Mapping[str, Any]) -> Outcome:
    """From DescribeTrainingJob's answer for a job that has ended."""
    status = str(described["TrainingJobStatus"])
    secondary = str(described.get("SecondaryStatus", status))
    resources = described.get("ResourceConfig", {})
    if status == "Completed":
        code, summary = ExitCode.OK, "completed"
    elif status == "Failed":
        code, summary = ExitCode.JOB_FAILED, "failed"
    else:
        code, summary = _STOPPED.get(secondary, (ExitCode.JOB_STOPPED, "stopped"))
    return Outcome(
        status,
        code,
        summary,
        plain_lines(str(described.get("FailureReason", ""))),
        described.get("ModelArtifacts", {}).get("S3ModelArtifacts") if status != "Failed" else None,
        described.get("TrainingTimeInSeconds"),
        described.get("BillableTimeInSeconds"),
        described.get("CheckpointConfig", {}).get("S3Uri"),
        resources.get("InstanceType") or resources.get("SelectedInstanceType"),
        status == "Completed" and "CheckpointConfig" not in described and bool(described.get(_NO_RESULTS)),
        bool(described.get(_NO_CHECKPOINTS)),
    )
