"""The SageMaker calls: CreateTrainingJob, and the calls about existing jobs.

A job belongs to the region that its request was signed for; calls of other regions do not find it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from smdp_launch.catalog.hosting.quotas import of_training
from smdp_launch.host_counts import hosts_by_type
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import training_job_arn
from smdp_launch.localcloud.capacity import candidates
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.job_state import JobState
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked, service_model
from smdp_launch.localcloud.runtime import mounts
from smdp_launch.localcloud.services import quotas
from smdp_launch.localcloud.services.paging import decode_token, encode_token, numbered_page
from smdp_launch.localcloud.services.tags import tag_list
from smdp_launch.localcloud.services.training import search
from smdp_launch.localcloud.services.training.descriptions import describe, describe_plan, summary, warm_pool
from smdp_launch.localcloud.services.training.job_store import JobStore, taken
from smdp_launch.localcloud.services.training.request_checks import check_training_job

_PAGE = 10  # jobs, as the service does without MaxResults
_SEARCHED = "TrainingJob"


class TrainingService:
    def __init__(self, jobs: JobStore, account: AccountFile, tuning_job_of: Callable[[str], str | None]) -> None:
        """`tuning_job_of`: the ARN of the tuning job of a job; None for a job without one."""
        self._tuning_job_of = tuning_job_of
        self._jobs = jobs
        self._account = account
        self._admission = threading.Lock()  # held from the check of the quota until the job exists

    def actions(self) -> dict[str, Action]:
        one = (self.CreateTrainingJob, self.DescribeTrainingJob, self.UpdateTrainingJob, self.StopTrainingJob)
        many = (self.DescribeTrainingPlan, self.DeleteTrainingJob, self.ListTrainingJobs, self.Search)
        return checked("sagemaker", *one, *many)

    def CreateTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        check_training_job(request, self._account.read(), caller.region())
        mounts.check(request, self._account)
        request = _with_first_type(request)
        with self._admission:
            self._admit(request)
            self._jobs.create(request, caller.region())
        return {"TrainingJobArn": training_job_arn(request["TrainingJobName"], caller.region())}

    def DescribeTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TrainingJobName"])
        state = self._jobs.state(folder)
        tuning = self._tuning_job_of(folder.name)
        more = {"TuningJobArn": tuning} if tuning is not None else {}
        return {**describe(self._jobs.request(folder), state, caller.region(), time.time()), **more}

    def DescribeTrainingPlan(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        name = request["TrainingPlanName"]
        plan = self._account.read().training_plans.get(name)
        if plan is None:
            raise ServiceError("ResourceNotFound", f"Training plan {name} not found.")
        return describe_plan(name, plan, caller.region())

    def UpdateTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._require(request["TrainingJobName"])
        status = self._jobs.state(folder).status
        changed = {one: request[one] for one in ("ProfilerConfig", "RemoteDebugConfig") if one in request}
        if status != "InProgress" and changed:
            raise validation(f"The request was rejected because the training job is in status {status}.")
        if "ResourceConfig" in request:
            current = self._jobs.request(folder)["ResourceConfig"]
            changed["ResourceConfig"] = {**current, **request["ResourceConfig"]}
        self._jobs.update(folder, changed)
        return {"TrainingJobArn": training_job_arn(folder.name, caller.region())}

    def StopTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TrainingJobName"])
        status = self._jobs.state(folder).status
        if status not in ("InProgress", "Stopping"):
            raise validation(f"The request was rejected because the training job is in status {status}.")
        self._jobs.stop(folder)
        return {}

    def DeleteTrainingJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._require(request["TrainingJobName"])
        state = self._jobs.state(folder)
        if not state.has_ended:
            raise in_use(f"the training job is in status {state.status}; stop it and wait for its end")
        pool = warm_pool(self._jobs.request(folder), state, time.time())
        if pool is not None and pool["Status"] == "Available":
            raise in_use("the training job retains a warm pool; set its KeepAlivePeriodInSeconds to 0")
        if not self._jobs.delete(folder):
            raise in_use("the local cloud is still removing the training job's hosts; try again")
        return {}

    def ListTrainingJobs(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        now = time.time()
        jobs = [(created, state) for _, created, state in self._all()]
        matching = [one for one in jobs if _matches(*one, request, now)]
        by, descending = request.get("SortBy", "CreationTime"), request.get("SortOrder") == "Descending"
        entries = sorted(((_sort_key(by, *one), one) for one in matching), key=lambda one: one[0], reverse=descending)
        if "NextToken" in request:
            last = _read_token(request["NextToken"], by)
            entries = [one for one in entries if (one[0] < last if descending else one[0] > last)]
        size = int(request.get("MaxResults", _PAGE))
        summaries = [summary(*one, caller.region(), now) for _, one in entries[:size]]
        answer: dict[str, Any] = {"TrainingJobSummaries": summaries}
        return {**answer, "NextToken": encode_token(entries[size - 1][0])} if size < len(entries) else answer

    def Search(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        if request["Resource"] != _SEARCHED:
            raise validation(f"The local cloud searches only Resource {_SEARCHED}, not {request['Resource']}.")
        expression = request.get("SearchExpression", {})
        found = [one for one in self._records() if search.matches(expression, one)]
        by = request.get("SortBy", "LastModifiedTime")
        found.sort(key=lambda one: one["TrainingJobName"])
        found.sort(key=lambda one: search.sort_key(one, by), reverse=request.get("SortOrder") != "Ascending")
        page, following = numbered_page(found, request, _PAGE, _invalid_token())
        return {
            "Results": [{_SEARCHED: one} for one in page],
            "TotalHits": {"Value": len(found), "Relation": "EqualTo"},
            **following,
        }

    def tags(self, name: str) -> Mapping[str, str]:
        return self._jobs.tags(self._find(name))

    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None:
        self._jobs.change_tags(self._find(name), added, removed)

    def _admit(self, request: Parameters) -> None:
        """Raises ServiceError where the name is taken or the quota of the instance type is exceeded."""
        existing = self._jobs.folder(request["TrainingJobName"])
        if existing is not None:
            raise taken(existing.region)
        spot, account = bool(request.get("EnableManagedSpotTraining")), self._account.read()
        for kind, count in hosts_by_type(request["ResourceConfig"]).items():
            name = of_training(kind, spot=spot)
            quota, used = account.quota_of(name), self._used(kind, spot)
            if used + count > quota:
                raise quotas.refusal(name, quota=quota, used=used, requested=count)

    def _used(self, kind: str, spot: bool) -> int:
        """Number of instances of the type that jobs of the region have now."""
        requests = [request for _, request, state in self._all() if not state.has_ended]
        return sum(
            hosts_by_type(one["ResourceConfig"]).get(kind, 0)
            for one in requests
            if bool(one.get("EnableManagedSpotTraining")) == spot
        )

    def _all(self) -> Iterator[tuple[JobFolder, dict[str, Any], JobState]]:
        """The jobs of the caller's region: folder, request and state."""
        for folder in self._jobs.folders(caller.region()):
            with self._unless_deleted(folder):
                state, request = self._jobs.state(folder), self._jobs.request(folder)
                yield folder, {**request, "TrainingJobName": folder.name}, state

    @contextmanager
    def _unless_deleted(self, folder: JobFolder) -> Iterator[None]:
        """Ignore errors of a job that is deleted meanwhile."""
        try:
            yield
        except ServiceError:
            if folder.root.exists():
                raise

    def _records(self) -> Iterator[dict[str, Any]]:
        """The jobs of the caller's region as Search returns them."""
        fields = service_model("sagemaker").shape_for(_SEARCHED).members
        now = time.time()
        for folder, request, state in self._all():
            with self._unless_deleted(folder):
                answer = {**describe(request, state, caller.region(), now), "Tags": tag_list(self._jobs.tags(folder))}
                yield {name: value for name, value in answer.items() if name in fields}

    def _find(self, name: str) -> JobFolder:
        folder = self._jobs.folder(name, caller.region())
        if folder is None:
            raise validation("Requested resource not found.")
        return folder

    def _require(self, name: str) -> JobFolder:
        """As `_find`, but with the error ResourceNotFound, which some calls have."""
        folder = self._jobs.folder(name, caller.region())
        if folder is None:
            raise ServiceError("ResourceNotFound", "Requested resource not found.")
        return folder


def _with_first_type(request: Parameters) -> Parameters:
    """The request with the first of its preferred types, until the job gets one of them."""
    resources = request["ResourceConfig"]
    if not resources.get("InstancePreferences"):
        return request
    kind, count = next(candidates(resources))
    return {**request, "ResourceConfig": {**resources, "InstanceType": kind, "InstanceCount": count}}


def in_use(why: str) -> ServiceError:
    return ServiceError("ResourceInUse", f"The request was rejected because {why}.")


def _matches(created: Mapping[str, Any], state: JobState, request: Parameters, now: float) -> bool:
    """Whether a job, created with the request `created`, passes the filters of a ListTrainingJobs request."""
    times = {"CreationTime": state.created, "LastModifiedTime": state.modified}
    pool = warm_pool(created, state, now) or {}
    return (
        request.get("NameContains", "").lower() in created["TrainingJobName"].lower()
        and request.get("StatusEquals") in (None, state.status)
        and request.get("WarmPoolStatusEquals") in (None, pool.get("Status"))
        and "TrainingPlanArnEquals" not in request  # no local job has a training plan
        and all(time > request.get(f"{one}After", float("-inf")) for one, time in times.items())
        and all(time < request.get(f"{one}Before", float("inf")) for one, time in times.items())
    )


def _sort_key(by: str, request: Mapping[str, Any], state: JobState) -> tuple[str | float, str]:
    """The job's place in the list. The next page begins after it, whatever jobs are created or deleted meanwhile."""
    name = request["TrainingJobName"]
    return {"Name": name, "Status": state.status}.get(by, state.created), name


def _read_token(token: str, by: str) -> tuple[str | float, str]:
    """The sort key in a client's token, which can be compared with those of the order `by`. Raises ServiceError."""
    match decode_token(token, _invalid_token()):
        case [str() | int() | float() as first, str(name)] if isinstance(first, str) == (by in ("Name", "Status")):
            return first, name
    raise _invalid_token()


def _invalid_token() -> ServiceError:
    return validation("Invalid NextToken.")
