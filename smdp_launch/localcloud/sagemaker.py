"""The SageMaker calls: CreateTrainingJob and what follows a job."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud import mounts, quotas
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import training_job_arn
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.jobs import JobStore, taken
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.requests import Action, Parameters, check_training_job, checked
from smdp_launch.localcloud.state import JobState

_PAGE = 10  # jobs, as the service where the request names no number


class TrainingService:
    def __init__(self, jobs: JobStore, account: AccountFile) -> None:
        self._jobs = jobs
        self._account = account
        self._admission = threading.Lock()  # between a look at the quota and the job that uses it

    def actions(self) -> dict[str, Action]:
        life = (self.CreateTrainingJob, self.DescribeTrainingJob, self.UpdateTrainingJob, self.StopTrainingJob)
        return checked("sagemaker", *life, self.ListTrainingJobs, self.ListTags, self.AddTags, self.DeleteTags)

    def CreateTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_training_job(request)
        mounts.check(request, self._account)
        with self._admission:
            self._admit(request)
            self._jobs.create(request)
        return {"TrainingJobArn": training_job_arn(request["TrainingJobName"])}

    def DescribeTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TrainingJobName"])
        state = self._jobs.state(folder)
        return describe(self._jobs.request(folder), state, time.time())

    def UpdateTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        name = request["TrainingJobName"]
        folder = self._jobs.folder(name)
        if folder is None:
            raise ServiceError("ResourceNotFound", "Requested resource not found.")
        status = self._jobs.state(folder).status
        changed = {one: request[one] for one in ("ProfilerConfig", "RemoteDebugConfig") if one in request}
        if status != "InProgress" and changed:
            raise validation(f"The request was rejected because the training job is in status {status}.")
        if "ResourceConfig" in request:
            kept = self._jobs.request(folder)["ResourceConfig"]
            changed["ResourceConfig"] = {**kept, **request["ResourceConfig"]}
        self._jobs.update(folder, changed)
        return {"TrainingJobArn": training_job_arn(name)}

    def StopTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TrainingJobName"])
        status = self._jobs.state(folder).status
        if status not in ("InProgress", "Stopping"):
            raise validation(f"The request was rejected because the training job is in status {status}.")
        self._jobs.stop(folder)
        return {}

    def ListTrainingJobs(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        states = [(folder.name, self._jobs.state(folder)) for folder in self._jobs.folders()]
        chosen = [(name, state) for name, state in states if _is_wanted(name, state, request)]
        by, descending = request.get("SortBy", "CreationTime"), request.get("SortOrder") == "Descending"
        places = sorted(((_place(by, *one), one) for one in chosen), key=lambda one: one[0], reverse=descending)
        if "NextToken" in request:
            last = _read_token(request["NextToken"], by)
            places = [one for one in places if (one[0] < last if descending else one[0] > last)]
        size = int(request.get("MaxResults", _PAGE))
        answer: dict[str, Any] = {"TrainingJobSummaries": [_summary(*one) for _, one in places[:size]]}
        return {**answer, "NextToken": _token(places[size - 1][0])} if size < len(places) else answer

    def ListTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        return {"Tags": _tag_list(self._jobs.tags(self._find_arn(request["ResourceArn"])))}

    def AddTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find_arn(request["ResourceArn"])
        self._jobs.change_tags(folder, {tag["Key"]: tag["Value"] for tag in request["Tags"]}, ())
        return {"Tags": _tag_list(self._jobs.tags(folder))}

    def DeleteTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        self._jobs.change_tags(self._find_arn(request["ResourceArn"]), {}, request["TagKeys"])
        return {}

    def _admit(self, request: Parameters) -> None:
        """Raises ServiceError where the name is taken or the account has no room for the instances."""
        if self._jobs.folder(request["TrainingJobName"]) is not None:
            raise taken()
        resources, spot = request["ResourceConfig"], bool(request.get("EnableManagedSpotTraining"))
        kind, wanted = resources["InstanceType"], resources["InstanceCount"]
        room, used = self._account.read().room(kind), self._used(kind, spot)
        if used + wanted > room:
            raise quotas.refusal(kind, room=room, used=used, wanted=wanted, spot=spot)

    def _used(self, kind: str, spot: bool) -> int:
        """Instances of the type that jobs have now."""
        requests = [self._jobs.request(one) for one in self._jobs.folders() if not self._jobs.state(one).has_ended]
        return sum(
            one["ResourceConfig"]["InstanceCount"]
            for one in requests
            if one["ResourceConfig"]["InstanceType"] == kind and bool(one.get("EnableManagedSpotTraining")) == spot
        )

    def _find(self, name: str) -> JobFolder:
        folder = self._jobs.folder(name)
        if folder is None:
            raise validation("Requested resource not found.")
        return folder

    def _find_arn(self, resource: str) -> JobFolder:
        prefix = training_job_arn("")
        return self._find(resource.removeprefix(prefix) if resource.startswith(prefix) else "")


def describe(request: Parameters, state: JobState, now: float) -> dict[str, Any]:
    """The answer of DescribeTrainingJob. Members that the service fills in where the request is silent, and that
    clients read without asking, are filled in here too."""
    answer: dict[str, Any] = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **{name: value for name, value in request.items() if name != "Tags"},
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "TrainingJobArn": training_job_arn(request["TrainingJobName"]),
        "TrainingJobStatus": state.status,
        "SecondaryStatus": "Stopping" if state.status == "Stopping" else state.secondary,
        "SecondaryStatusTransitions": state.transitions,
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
    }
    if state.started is not None:
        answer["TrainingStartTime"] = state.started
        answer["TrainingTimeInSeconds"] = round((state.ended or now) - state.started)
    if state.ended is not None:
        answer["TrainingEndTime"] = state.ended
        answer |= {
            "TrainingTimeInSeconds": state.training_seconds,
            "BillableTimeInSeconds": state.billable_seconds,
        }
    if state.failure is not None:
        answer["FailureReason"] = state.failure
    if state.model is not None:
        answer["ModelArtifacts"] = {"S3ModelArtifacts": state.model}
    if state.metrics:
        answer["FinalMetricDataList"] = state.metrics
    return answer


def _summary(name: str, state: JobState) -> dict[str, Any]:
    summary = {
        "TrainingJobName": name,
        "TrainingJobArn": training_job_arn(name),
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        "TrainingJobStatus": state.status,
        "SecondaryStatus": state.secondary,
    }
    return summary if state.ended is None else {**summary, "TrainingEndTime": state.ended}


def _is_wanted(name: str, state: JobState, request: Parameters) -> bool:
    times = {"CreationTime": state.created, "LastModifiedTime": state.modified}
    return (
        request.get("NameContains", "").lower() in name.lower()
        and request.get("StatusEquals") in (None, state.status)
        and not {"WarmPoolStatusEquals", "TrainingPlanArnEquals"} & request.keys()  # no job here has either
        and all(time > request.get(f"{one}After", float("-inf")) for one, time in times.items())
        and all(time < request.get(f"{one}Before", float("inf")) for one, time in times.items())
    )


def _place(by: str, name: str, state: JobState) -> tuple[str | float, str]:
    """Where a job stands in the list, for good: a page goes on behind it whatever has come or gone meanwhile."""
    return {"Name": name, "Status": state.status}.get(by, state.created), name


def _token(place: tuple[str | float, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_token(token: str, by: str) -> tuple[str | float, str]:
    """A client's, so it may be anything: what comes back can be compared with the places of this order."""
    try:
        first, name = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError, RecursionError):
        raise validation("Invalid NextToken.") from None
    if not isinstance(first, str if by in ("Name", "Status") else int | float) or not isinstance(name, str):
        raise validation("Invalid NextToken.")
    return first, name


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
