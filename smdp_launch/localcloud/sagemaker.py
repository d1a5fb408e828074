"""The SageMaker calls: CreateTrainingJob and what follows a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import validation
from smdp_launch.localcloud.jobs import JobStore
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.requests import check_shape, check_training_job
from smdp_launch.localcloud.state import JobState

REGION = "us-east-1"
_PAGE = 100  # as the service: the most, and here also the default, of a page of jobs

Parameters = Mapping[str, Any]
Action = Callable[[Parameters], Mapping[str, Any]]


def arn(name: str) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"


class TrainingService:
    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def actions(self) -> dict[str, Action]:
        calls: list[Action] = [self.CreateTrainingJob, self.DescribeTrainingJob, self.StopTrainingJob]
        calls += [self.ListTrainingJobs, self.ListTags, self.AddTags]
        return {call.__name__: _checked(call) for call in calls}

    def CreateTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_training_job(request)
        self._jobs.create(request)
        return {"TrainingJobArn": arn(request["TrainingJobName"])}

    def DescribeTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TrainingJobName"])
        return describe(self._jobs.request(folder), self._jobs.state(folder), time.time())

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
        by_name = request.get("SortBy") == "Name"
        chosen.sort(
            key=lambda item: (0.0 if by_name else item[1].created, item[0]),
            reverse=request.get("SortOrder") == "Descending",
        )
        start = _offset(request.get("NextToken", "0"))
        end = start + min(int(request.get("MaxResults", _PAGE)), _PAGE)
        answer: dict[str, Any] = {"TrainingJobSummaries": [_summary(*item) for item in chosen[start:end]]}
        if end < len(chosen):
            answer["NextToken"] = str(end)
        return answer

    def ListTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        return {"Tags": _tag_list(self._jobs.tags(self._find_arn(request["ResourceArn"])))}

    def AddTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find_arn(request["ResourceArn"])
        self._jobs.add_tags(folder, {tag["Key"]: tag["Value"] for tag in request["Tags"]})
        return {"Tags": _tag_list(self._jobs.tags(folder))}

    def _find(self, name: str) -> JobFolder:
        folder = self._jobs.folder(name)
        if folder is None:
            raise validation("Requested resource not found.")
        return folder

    def _find_arn(self, resource: str) -> JobFolder:
        return self._find(resource.removeprefix(arn("")) if resource.startswith(arn("")) else "")


def _checked(call: Action) -> Action:
    def checked(parameters: Parameters) -> Mapping[str, Any]:
        check_shape(call.__name__, parameters)
        return call(parameters)

    return checked


def describe(request: Parameters, state: JobState, now: float) -> dict[str, Any]:
    """The answer of DescribeTrainingJob. Members that the service fills in where the request is silent, and that
    clients read without asking, are filled in here too."""
    answer: dict[str, Any] = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **{name: value for name, value in request.items() if name != "Tags"},
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "TrainingJobArn": arn(request["TrainingJobName"]),
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
        answer["TrainingTimeInSeconds"] = answer["BillableTimeInSeconds"] = state.billable_seconds
    if state.failure is not None:
        answer["FailureReason"] = state.failure
    if state.model is not None:
        answer["ModelArtifacts"] = {"S3ModelArtifacts": state.model}
    return answer


def _summary(name: str, state: JobState) -> dict[str, Any]:
    summary = {
        "TrainingJobName": name,
        "TrainingJobArn": arn(name),
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        "TrainingJobStatus": state.status,
        "SecondaryStatus": state.secondary,
    }
    return summary if state.ended is None else {**summary, "TrainingEndTime": state.ended}


def _is_wanted(name: str, state: JobState, request: Parameters) -> bool:
    status = request.get("StatusEquals")
    return request.get("NameContains", "").lower() in name.lower() and status in (None, state.status)


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _offset(token: str) -> int:
    if not (token.isascii() and token.isdecimal()):
        raise validation("Invalid NextToken.")
    return int(token)
