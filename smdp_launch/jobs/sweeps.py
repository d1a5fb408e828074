"""A launched sweep: its creation, its trials, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from smdp_launch.errors import EnvironmentProblem, ExitCode, Interrupted, ServiceProblem
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import LONGEST_OUTAGE, call_with_retries, waiting_for_recovery
from smdp_launch.jobs.status.interrupted_resume import explain_unknown
from smdp_launch.jobs.submit import create_once, send_source
from smdp_launch.jobs.transfer.upload import Progress, ignore_progress
from smdp_launch.plain_text import without_controls
from smdp_launch.planning.plan import Plan

ENDED = frozenset({"Completed", "Failed", "Stopped"})
_EXIT_CODES = {"Completed": ExitCode.OK, "Failed": ExitCode.JOB_FAILED, "Stopped": ExitCode.JOB_STOPPED}
_OBJECTIVE = "FinalHyperParameterTuningJobObjectiveMetric"


@dataclass(frozen=True)
class Trial:
    """One training job of a sweep.

    Args:
        values: the values of the hyperparameters with a range, as the service has them.
        objective: None without a result.
        seconds: time from the start of the training to its end; None before the end.
    """

    job: str
    status: str
    values: Mapping[str, str]
    objective: float | None
    seconds: float | None
    reason: str | None


@dataclass(frozen=True)
class SweepState:
    """A sweep as the service describes it.

    Args:
        trials: the best trial first; at the end the trials without a result, by name.
        best: the name of the best trial's job; None without a result.
        logarithmic: the hyperparameters whose range has a logarithmic scale.
    """

    name: str
    status: str
    metric: str
    goal: str
    most: int | None
    trials: tuple[Trial, ...]
    best: str | None
    reason: str | None
    logarithmic: frozenset[str] = frozenset()

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def exit_code(self) -> ExitCode:
        return _EXIT_CODES.get(self.status, ExitCode.OK)

    def to_json(self) -> dict[str, Any]:
        return {
            "trials": 1,
            "sweep": self.name,
            "status": self.status,
            "reason": self.reason,
            "metric": self.metric,
            "goal": self.goal,
            "most": self.most,
            "best": self.best,
            "jobs": [
                {
                    "job": one.job,
                    "status": one.status,
                    "values": dict(one.values),
                    "objective": one.objective,
                    "seconds": one.seconds,
                    "reason": one.reason,
                }
                for one in self.trials
            ],
        }


def create_sweep(clients: Clients, plan: Plan, progress: Progress = ignore_progress) -> None:
    """Upload the source and create the tuning job. Retries do not create a second one.

    Raises:
        ServiceProblem: the service refused, did not answer, or another tuning job has the name.
        EnvironmentProblem: the credentials have expired.
    """
    send_source(clients, plan, progress)
    create_tuning_job(clients, plan)


def create_tuning_job(clients: Clients, plan: Plan) -> None:
    """The second half of `create_sweep`.

    Raises:
        ServiceProblem: as `create_sweep`.
        EnvironmentProblem: as `create_sweep`.
        Interrupted: between two tries; the sweep may exist.
    """
    request, name = plan.submitted, plan.job

    def call() -> None:
        clients.sagemaker.create_hyper_parameter_tuning_job(**request)

    def arn() -> str:
        found = clients.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        return str(found["HyperParameterTuningJobArn"])

    create_once(clients, "sweep", name, call, arn, request["Tags"])


def describe_sweep(clients: Clients, name: str) -> SweepState:
    """Raises:
    ServiceProblem: the service does not know the sweep, refused, or did not answer.
    """

    def call() -> SweepState:
        found = clients.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        config = found["HyperParameterTuningJobConfig"]
        objective = config["HyperParameterTuningJobObjective"]
        pages = clients.sagemaker.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job").paginate(
            HyperParameterTuningJobName=name, PaginationConfig={"PageSize": 100}
        )
        trials = [_trial(one) for page in pages for one in page["TrainingJobSummaries"]]
        return SweepState(
            name=name,
            status=found["HyperParameterTuningJobStatus"],
            metric=objective["MetricName"],
            goal=objective["Type"].lower(),
            most=config["ResourceLimits"].get("MaxNumberOfTrainingJobs"),
            trials=tuple(_in_order(trials, objective["Type"])),
            best=found.get("BestTrainingJob", {}).get("TrainingJobName"),
            reason=_text(found.get("FailureReason")),
            logarithmic=_logarithmic(config.get("ParameterRanges", {})),
        )

    with explain_unknown(name):
        return call_with_retries(clients, f"sweep {name} cannot be described", call)


@contextmanager
def following(clients: Clients, name: str, longest: float = LONGEST_OUTAGE) -> Iterator[None]:
    """Inside the context, calls wait for the end of an outage of up to ``longest`` seconds, and for the renewal of the
    credentials. The error after that says that the sweep continues."""
    try:
        with waiting_for_recovery(clients, longest):
            yield
    except (ServiceProblem, EnvironmentProblem, Interrupted) as error:
        if error_kind(error.__cause__) is ErrorKind.FINAL:
            raise
        raise type(error)(f"{error}; {name} continues: smdp-launch trials {name}") from error.__cause__


def value_text(value: str) -> str:
    """A value of a hyperparameter for a person. Numbers have six digits: the whole number is in ``--json``."""
    text = value.strip('"')
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def stop_sweep(clients: Clients, name: str) -> str:
    """Request the service to stop the sweep and its trials. Return its status then; one that has ended is no error.

    Raises:
        ServiceProblem: the service refused, did not answer, or does not know the sweep.
    """
    status = describe_sweep(clients, name).status
    if status in ENDED:
        return status

    def call() -> None:
        clients.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)

    try:
        call_with_retries(clients, f"sweep {name} could not be stopped", call)
    except ServiceProblem:
        status = describe_sweep(clients, name).status
        if status not in ENDED:
            raise
        return status
    return "Stopping"


def _trial(one: Mapping[str, Any]) -> Trial:
    began, ended = one.get("TrainingStartTime"), one.get("TrainingEndTime")
    return Trial(
        job=one["TrainingJobName"],
        status=one["TrainingJobStatus"],
        values={name: without_controls(value) for name, value in sorted(one["TunedHyperParameters"].items())},
        objective=one[_OBJECTIVE]["Value"] if _OBJECTIVE in one else None,
        seconds=_seconds(began, ended),
        reason=_text(one.get("FailureReason")),
    )


def _logarithmic(ranges: Mapping[str, Sequence[Mapping[str, Any]]]) -> frozenset[str]:
    named = [one for kind in ranges.values() if isinstance(kind, list) for one in kind if "ScalingType" in one]
    return frozenset(one["Name"] for one in named if one["ScalingType"] == "Logarithmic")


def _seconds(began: datetime | None, ended: datetime | None) -> float | None:
    return round((ended - began).total_seconds(), 3) if began is not None and ended is not None else None


def _text(reason: str | None) -> str | None:
    return without_controls(reason) if reason is not None else None


def _in_order(trials: list[Trial], goal: str) -> list[Trial]:
    done = [one for one in trials if one.objective is not None]
    done.sort(key=lambda one: one.objective if one.objective is not None else 0.0, reverse=goal == "Maximize")
    return [*done, *sorted((one for one in trials if one.objective is None), key=lambda one: one.job)]
