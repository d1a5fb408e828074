"""A training job as DescribeTrainingJob, ListTrainingJobs and Search show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.account import TrainingPlan
from smdp_launch.localcloud.arns import training_job_arn, training_plan_arn
from smdp_launch.localcloud.job_state import JobState
from smdp_launch.localcloud.runtime.artifacts import model_address

Request = Mapping[str, Any]


def describe(request: Request, state: JobState, region: str, now: float) -> dict[str, Any]:
    """The answer of DescribeTrainingJob.

    Like the service it sets fields that the request does not have and that clients read without a check. ModelArtifacts
    is always present, since the service's model requires it: before the upload it is the model's future address.
    """
    answer: dict[str, Any] = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **{name: value for name, value in request.items() if name != "Tags"},
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "ResourceConfig": _resources(request["ResourceConfig"]),
        "TrainingJobArn": training_job_arn(request["TrainingJobName"], region),
        "ModelArtifacts": {"S3ModelArtifacts": state.model or model_address(request)},
        "TrainingJobStatus": state.status,
        "SecondaryStatus": "Stopping" if state.status == "Stopping" else state.secondary,
        "SecondaryStatusTransitions": state.transitions,
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        **_times(state, now),
    }
    pool = warm_pool(request, state, now)
    if pool is not None:
        answer["WarmPoolStatus"] = pool
    if state.failure is not None:
        answer["FailureReason"] = state.failure
    if state.metrics:
        answer["FinalMetricDataList"] = state.metrics
    return answer


def _resources(resources: Request) -> Request:
    """Without the type that the local cloud keeps beside preferred types: the service shows it as the selected one."""
    own = ("InstanceType", "InstanceCount") if resources.get("InstancePreferences") else ()
    return {name: value for name, value in resources.items() if name not in own}


def _times(state: JobState, now: float) -> dict[str, Any]:
    if state.started is None:
        return {"TrainingTimeInSeconds": 0, "BillableTimeInSeconds": 0} if state.ended is not None else {}
    if state.ended is None:
        return {"TrainingStartTime": state.started, "TrainingTimeInSeconds": round(now - state.started)}
    return {
        "TrainingStartTime": state.started,
        "TrainingEndTime": state.ended,
        "TrainingTimeInSeconds": state.training_seconds,
        "BillableTimeInSeconds": state.billable_seconds,
    }


def describe_plan(name: str, plan: TrainingPlan, region: str) -> dict[str, Any]:
    """The answer of DescribeTrainingPlan. No job takes instances of a plan: all are free."""
    reserved = {
        "ReservedCapacityArn": f"{training_plan_arn(name, region)}/reserved-capacity/1",
        "InstanceType": plan.type,
        "TotalInstanceCount": plan.count,
        "Status": plan.status,
    }
    return {
        "TrainingPlanArn": training_plan_arn(name, region),
        "TrainingPlanName": name,
        "Status": plan.status,
        "TotalInstanceCount": plan.count,
        "AvailableInstanceCount": plan.count,
        "InUseInstanceCount": 0,
        "TargetResources": ["training-job"],
        "ReservedCapacitySummaries": [reserved],
    }


def warm_pool(request: Request, state: JobState, now: float) -> dict[str, Any] | None:
    """WarmPoolStatus; None where the job requests no warm pool.

    Only the status is simulated: no later job starts faster or is reported to reuse the pool.
    """
    period = request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
    if not period:
        return None
    if not state.has_ended:
        return {"Status": "InUse"}
    if state.status != "Completed" or state.ended is None:
        return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}
    if now < state.ended + period:
        return {"Status": "Available"}
    return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": period}


def summary(request: Request, state: JobState, region: str, now: float) -> dict[str, Any]:
    """One entry of ListTrainingJobs."""
    name, pool = request["TrainingJobName"], warm_pool(request, state, now)
    found = {
        "TrainingJobName": name,
        "TrainingJobArn": training_job_arn(name, region),
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        "TrainingJobStatus": state.status,
        "SecondaryStatus": state.secondary,
        **({"TrainingEndTime": state.ended} if state.ended is not None else {}),
    }
    return found if pool is None else {**found, "WarmPoolStatus": pool}
