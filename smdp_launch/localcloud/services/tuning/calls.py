"""The SageMaker calls about tuning jobs, and their folders.

The local cloud draws the values of `Bayesian` and `Hyperband` at random, and Hyperband stops no trials.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from smdp_launch.localcloud import tuning_state
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import training_job_arn, tuning_job_arn
from smdp_launch.localcloud.end_state import ENDED
from smdp_launch.localcloud.errors import ServiceError, damaged, validation
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.layout import JOB_NAME, StateFolder, TuningFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.runtime.tuning.parents import IDENTICAL, parent_names
from smdp_launch.localcloud.runtime.tuning.trials import best, look, trial_request
from smdp_launch.localcloud.runtime.tuning.values import objective_of, trial_values
from smdp_launch.localcloud.services.listing import Entry, listed
from smdp_launch.localcloud.services.paging import numbered_page
from smdp_launch.localcloud.services.supervised import Supervised, write_request
from smdp_launch.localcloud.services.training.job_store import JobStore
from smdp_launch.localcloud.services.training.request_checks import check_training_job
from smdp_launch.localcloud.services.tuning.checks import check_tuning_job
from smdp_launch.localcloud.services.tuning.parents import check_parent
from smdp_launch.localcloud.tuning_state import TrialRecord, TuningState

_SUPERVISOR = "smdp_launch.localcloud.runtime.tuning.supervisor"
_PAGE = 10
_TRIAL_SUFFIX = "-001-00000000"


class TuningService:
    """The server's main thread calls `reap`, the threads of requests all else."""

    def __init__(self, state: StateFolder, jobs: JobStore) -> None:
        self._state = state
        self._jobs = jobs
        self._account: AccountFile | None = None
        self._supervised = Supervised(state, state.tunings, TuningFolder, _SUPERVISOR)

    def actions(self, account: AccountFile) -> dict[str, Action]:
        self._account = account
        one = (self.CreateHyperParameterTuningJob, self.DescribeHyperParameterTuningJob)
        more = (self.StopHyperParameterTuningJob, self.ListHyperParameterTuningJobs)
        return checked("sagemaker", *one, *more, self.ListTrainingJobsForHyperParameterTuningJob)

    def active(self) -> bool:
        """Whether a tuning job runs, or is not finalized."""
        return bool(self._supervised.folders())

    def reap(self) -> None:
        """Finalize tuning jobs whose supervisor died. Called periodically."""
        self._supervised.reap(self._finalize)

    def CreateHyperParameterTuningJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the names)
        check_tuning_job(request)
        name = request["HyperParameterTuningJobName"]
        for one in parent_names(request):
            parent = self._find(one)
            check_parent(request, one, self._read(parent).status, self._request(parent))
        if self._account is not None:
            # An error in the definition is reported now, and not by each trial.
            trial = trial_request(request, name + _TRIAL_SUFFIX, trial_values(request, 0, [], name), {})
            check_training_job(trial, self._account.read(), caller.region())

        def write(draft: TuningFolder) -> None:
            now = round(time.time(), 3)
            write_request(draft, request, caller.region())
            tuning_state.write(draft.state, TuningState(now, now))

        self._supervised.start(name, write, _taken)
        return {"HyperParameterTuningJobArn": tuning_job_arn(name, caller.region())}

    def DescribeHyperParameterTuningJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["HyperParameterTuningJobName"])
        state, own = self._read(folder), self._request(folder)
        trials = self._trials(own, state)
        answer = {**own, **_common(folder, own, state, trials)}
        objective = objective_of(own)
        first = best(trials, objective["Type"])
        if first is not None:
            answer["BestTrainingJob"] = _trial_summary(first, own)
        if state.failure is not None:
            answer["FailureReason"] = state.failure
        if own.get("WarmStartConfig", {}).get("WarmStartType") == IDENTICAL:
            overall = self._overall_best(own, first)
            if overall is not None:
                answer["OverallBestTrainingJob"] = overall
        answer["ConsumedResources"] = {"RuntimeInSeconds": round((state.ended or time.time()) - state.created)}
        return answer

    def StopHyperParameterTuningJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["HyperParameterTuningJobName"])
        status = self._read(folder).status
        if status not in ("InProgress", "Stopping"):
            raise validation(f"The request was rejected because the hyper parameter tuning job is in status {status}.")
        write_json(folder.stop, {"time": time.time()})
        return {}

    def ListHyperParameterTuningJobs(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        entries = []
        for folder in self._state.tuning_folders():
            if folder.region == caller.region():
                state, own = self._read(folder), self._request(folder)
                summary = _common(folder, own, state, self._trials(own, state))
                summary["Strategy"] = own["HyperParameterTuningJobConfig"]["Strategy"]
                summary["ResourceLimits"] = own["HyperParameterTuningJobConfig"]["ResourceLimits"]
                entries.append(Entry(folder.name, state.created, summary, state.modified, state.status))
        page, following = listed(entries, request)
        return {"HyperParameterTuningJobSummaries": page, **following}

    def ListTrainingJobsForHyperParameterTuningJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["HyperParameterTuningJobName"])
        own = self._request(folder)
        wanted = request.get("StatusEquals")
        trials = [one for one in self._trials(own, self._read(folder)) if wanted in (None, _status(one))]
        ordered = _sorted(trials, request.get("SortBy", "Name"), request.get("SortOrder") == "Descending")
        page, following = numbered_page(ordered, request, _PAGE, validation("Invalid NextToken."))
        return {"TrainingJobSummaries": [_trial_summary(one, own) for one in page], **following}

    def tags(self, name: str) -> Mapping[str, str]:
        return self._supervised.tags(self._find(name))

    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None:
        self._supervised.change_tags(self._find(name), added, removed)

    def tuning_job_of(self, training_job: str) -> str | None:
        """The ARN of the tuning job whose trial the training job is; None for any other job."""
        name = training_job.rsplit("-", 2)[0]
        folder = TuningFolder(self._state.tunings / name)
        state = tuning_state.read(folder.state) if JOB_NAME.fullmatch(name) else None
        is_trial = state is not None and any(one.name == training_job for one in state.trials)
        return tuning_job_arn(name, folder.region) if is_trial else None

    def _find(self, name: str) -> TuningFolder:
        folder = TuningFolder(self._state.tunings / name) if JOB_NAME.fullmatch(name) else None
        if folder is None or not folder.state.exists() or folder.region != caller.region():
            raise ServiceError("ResourceNotFound", f"Amazon SageMaker can't find a tuning job with the name {name}.")
        return folder

    def _read(self, folder: TuningFolder) -> TuningState:
        state = tuning_state.read(folder.state)
        if state is None:
            raise damaged(folder.state)
        if folder.stop.exists() and not state.has_ended:
            state.status = "Stopping"
        return state

    def _request(self, folder: TuningFolder) -> dict[str, Any]:
        own: dict[str, Any] = read_json(folder.request) or {}
        return own

    def _trials(self, request: Mapping[str, Any], state: TuningState) -> list[TrialRecord]:
        return [look(self._state, one, objective_of(request)["MetricName"]) for one in state.trials]

    def _overall_best(self, request: Mapping[str, Any], own: TrialRecord | None) -> dict[str, Any] | None:
        """Of the tuning job and its parents."""
        goal = objective_of(request)["Type"]
        found = [(own, request)] if own is not None else []
        for one in parent_names(request):
            folder = TuningFolder(self._state.tunings / one)
            state, parent = tuning_state.read(folder.state), self._request(folder)
            first = best(state.trials, goal) if state is not None else None
            found += [(first, parent)] if first is not None else []
        first = best([one for one, _ in found if one is not None], goal)
        return next((_trial_summary(one, each) for one, each in found if one is first and one is not None), None)

    def _finalize(self, folder: TuningFolder) -> bool:
        """Clean up after a supervisor that has exited; False where that fails for now, as on a full disk."""
        state = tuning_state.read(folder.state)
        if state is None or state.has_ended:
            return True
        try:
            for one in self._trials(self._request(folder), state):
                job = self._jobs.folder(one.name) if one.status not in ENDED else None
                if job is not None:
                    self._jobs.stop(job)
            reason = "InternalServerError: the tuning job's supervisor died (killed, or out of memory); see "
            state.end("Failed", f"{reason}{folder.supervisor_log}", time.time())
            tuning_state.write(folder.state, state)
        except OSError:
            return False
        return True


def _taken(folder: TuningFolder) -> ServiceError:
    there = f" The local cloud keeps names unique in all regions: {folder.region} has the job."
    message = "Hyper parameter tuning job names must be unique within an AWS account and region."
    return ServiceError("ResourceInUse", message if folder.region == caller.region() else f"{message}{there}")


def _status(trial: TrialRecord) -> str:
    return trial.status or "InProgress"


def _objective_status(trial: TrialRecord) -> str:
    if _status(trial) not in ENDED:
        return "Pending"
    return "Succeeded" if trial.value is not None and trial.status != "Failed" else "Failed"


def _common(
    folder: TuningFolder, request: Mapping[str, Any], state: TuningState, trials: Sequence[TrialRecord]
) -> dict[str, Any]:
    """The fields of a tuning job that its description and its entry in a list have."""
    statuses = [_status(one) for one in trials]
    objectives = [_objective_status(one) for one in trials]
    answer: dict[str, Any] = {
        "HyperParameterTuningJobName": folder.name,
        "HyperParameterTuningJobArn": tuning_job_arn(folder.name, folder.region),
        "HyperParameterTuningJobStatus": state.status,
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        "TrainingJobStatusCounters": {
            "Completed": statuses.count("Completed"),
            "InProgress": statuses.count("InProgress") + statuses.count("Stopping"),
            "RetryableError": 0,
            "NonRetryableError": statuses.count("Failed"),
            "Stopped": statuses.count("Stopped"),
        },
        "ObjectiveStatusCounters": {one: objectives.count(one) for one in ("Succeeded", "Pending", "Failed")},
    }
    return answer if state.ended is None else {**answer, "HyperParameterTuningEndTime": state.ended}


def _trial_summary(trial: TrialRecord, request: Mapping[str, Any]) -> dict[str, Any]:
    objective = objective_of(request)
    metric = {"Type": objective["Type"], "MetricName": objective["MetricName"], "Value": trial.value}
    fields = {
        "TrainingJobName": trial.name,
        "TrainingJobArn": training_job_arn(trial.name, caller.region()),
        "CreationTime": trial.created,
        "TrainingStartTime": trial.started,
        "TrainingEndTime": trial.ended,
        "TrainingJobStatus": _status(trial),
        "TunedHyperParameters": trial.values,
        "FailureReason": trial.failure,
        "FinalHyperParameterTuningJobObjectiveMetric": metric if trial.value is not None else None,
        "ObjectiveStatus": _objective_status(trial),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _sorted(trials: list[TrialRecord], by: str, descending: bool) -> list[TrialRecord]:
    """Trials without a value come last, in both orders."""
    if by == "FinalObjectiveMetricValue":
        with_value = [one for one in trials if one.value is not None]
        with_value.sort(key=lambda one: one.value if one.value is not None else 0.0, reverse=descending)
        return [*with_value, *(one for one in trials if one.value is None)]
    keys = {"CreationTime": lambda one: one.created, "Status": _status}
    return sorted(trials, key=keys.get(by, lambda one: one.name), reverse=descending)
