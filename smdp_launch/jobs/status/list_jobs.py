"""Lists jobs with one call of ListTrainingJobs for many jobs, not one call for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from smdp_launch.errors import ServiceProblem, SmdpError
from smdp_launch.jobs.records.history import LOCAL, ends, launches, record_end
from smdp_launch.jobs.records.lines import NEVER_ACCEPTED, End, Launch
from smdp_launch.jobs.records.outcome import ENDED, NO_JOB
from smdp_launch.jobs.service.clients import Clients, connection, ignore_waiting
from smdp_launch.jobs.service.listing import PAGE, newest_first, newest_pages
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import describe, describe_training_job
from smdp_launch.jobs.status.interrupted_resume import is_unknown

_CLOCK_SKEW = timedelta(days=1)  # the local clock may be ahead of the service's by so much
_NO_LIST = "the jobs cannot be listed"


@dataclass(frozen=True)
class ListedJob:
    """A job and its last known state. ``status`` is None if it is unknown; ``problem`` is the reason then.

    Args:
        time: of the launch, or of its creation by the service.
        summary: the status as text, such as ``stopped at its maximum run time``.
    """

    job: str
    where: str
    time: datetime
    status: str | None
    summary: str
    hosts: int | None = None
    billable_seconds: int | None = None
    usd: float | None = None
    most_usd: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list. None stands for all.

    Args:
        since: with a time zone; earlier jobs are left out.
    """

    status: str | None = None
    is_local: bool | None = None
    since: datetime | None = None

    def includes_launch(self, launch: Launch) -> bool:
        return (self.is_local is None or (launch.where == LOCAL) is self.is_local) and (
            self.since is None or datetime.fromisoformat(launch.time) >= self.since
        )


def jobs_of_region(
    region: str,
    most: int,
    wanted: JobFilter = JobFilter(),
    on_waiting: Callable[[Waiting], None] = ignore_waiting,
) -> list[ListedJob]:
    """The account's training jobs in ``region``, the newest first. The service applies the filter.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: no credentials, or they have expired.
    """
    with connection(region)() as clients:
        clients.on_waiting = on_waiting
        arguments: dict[str, Any] = {"StatusEquals": wanted.status, "CreationTimeAfter": wanted.since}
        given = {name: value for name, value in arguments.items() if value is not None}
        return [_of_service(one, region) for one in islice(_all(clients, min(most, PAGE), **given), most)]


def _of_service(job: Mapping[str, Any], region: str) -> ListedJob:
    status = job["TrainingJobStatus"]
    return ListedJob(job["TrainingJobName"], region, job["CreationTime"].astimezone(timezone.utc), status, status)


def jobs_of_folder(
    most: int, wanted: JobFilter = JobFilter(), on_waiting: Callable[[Waiting], None] = ignore_waiting
) -> list[ListedJob]:
    """The jobs that were launched from the current folder, the last first. The status of a job whose service cannot be
    reached is unknown. No service is called for a job that the place or the time excludes."""
    launched, ended = [one for one in reversed(launches()) if wanted.includes_launch(one)], ends()
    if wanted.status is None:
        launched = launched[:most]
    found = update_statuses([one for one in launched if one.job not in ended], on_waiting)
    ended = ends()  # with the jobs whose end was just recorded
    jobs = [
        _listed(one, ended.get(one.job), found.statuses.get(one.job), found.problems.get(place_of(one)))
        for one in launched
    ]
    return [one for one in jobs if wanted.status in (None, one.status)][:most]


#: A region, or a local cloud by its state folder: arguments of `connection`.
Place = tuple[str, str | None]


def place_of(launch: Launch) -> Place:
    return launch.where, launch.state


class Update(NamedTuple):
    """Args:
    statuses: by job or sweep.
    problems: by place: its service could not be asked.
    unknown: jobs and sweeps that their service does not know. They may run in another account.
    """

    statuses: dict[str, str]
    problems: dict[Place, str]
    unknown: set[str]


def update_statuses(
    running: Sequence[Launch],
    on_waiting: Callable[[Waiting], None],
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> Update:
    """The statuses of jobs without a recorded end. The ends of training jobs are recorded in the history.

    Args:
        folders: by job, where it was launched; the current folder for the others.
    """
    statuses: dict[str, str] = {}
    problems: dict[Place, str] = {}
    for place in dict.fromkeys(place_of(one) for one in running):
        try:
            with connection(*place)() as clients:
                clients.on_waiting = on_waiting
                here = [one for one in running if place_of(one) == place]
                known = _find(clients, [one for one in here if not one.sweep])
                _record_ends(clients, known, folders)
                known |= _of_sweeps(clients, [one.job for one in here if one.sweep])
        except SmdpError as error:
            problems[place] = str(error)
        else:
            statuses |= known
    unknown = {one.job for one in running if one.job not in statuses and place_of(one) not in problems}
    return Update(statuses, problems, unknown)


def _of_sweeps(clients: Clients, names: Sequence[str]) -> dict[str, str]:
    """The statuses of the sweeps that the service knows."""
    call, what = clients.sagemaker.list_hyper_parameter_tuning_jobs, "the sweeps cannot be listed"
    statuses: dict[str, str] = {}
    for name in names:
        for one in newest_first(clients, call, "HyperParameterTuningJobSummaries", what, PAGE, NameContains=name):
            if one["HyperParameterTuningJobName"] == name:
                statuses[name] = one["HyperParameterTuningJobStatus"]
    return statuses


def _record_ends(clients: Clients, statuses: Mapping[str, str], folders: Mapping[str, Path]) -> None:
    for job in (job for job, status in statuses.items() if status in ENDED):
        outcome = describe(clients, job).outcome
        if outcome is not None:
            record_end(job, outcome, datetime.now(timezone.utc), folders.get(job))


def _listed(launch: Launch, end: End | None, status: str | None, problem: str | None) -> ListedJob:
    time = datetime.fromisoformat(launch.time)
    if end is not None:
        paid = (launch.hosts, end.billable_seconds, end.usd, launch.most_usd)
        known = end.ended if end.ended != NEVER_ACCEPTED else None
        return ListedJob(launch.job, launch.where, time, known, end.summary, *paid)
    summary = status or ("unknown" if problem is not None else NO_JOB.summary)
    return ListedJob(
        launch.job, launch.where, time, status, summary, launch.hosts, most_usd=launch.most_usd, problem=problem
    )


def _find(clients: Clients, launched: Sequence[Launch]) -> dict[str, str]:
    """The statuses of the jobs that the service knows. Jobs older than all of them are not listed. The account may have
    many other jobs: if more pages follow when as many were listed as jobs are left, each of these is described."""
    if not launched:
        return {}
    missing = {one.job for one in launched}
    since = min(datetime.fromisoformat(one.time) for one in launched) - _CLOCK_SKEW
    statuses: dict[str, str] = {}
    call, what = clients.sagemaker.list_training_jobs, _NO_LIST
    pages = newest_pages(clients, call, "TrainingJobSummaries", what, CreationTimeAfter=since)
    for number, page in enumerate(pages, 1):
        listed = {one["TrainingJobName"]: one["TrainingJobStatus"] for one in page.summaries}
        statuses |= {job: listed[job] for job in missing & listed.keys()}
        missing -= listed.keys()
        if page.is_last:
            return statuses
        if len(missing) <= number:
            break
    for job in sorted(missing):
        status = _status(clients, job)
        if status is not None:
            statuses[job] = status
    return statuses


def _status(clients: Clients, job: str) -> str | None:
    """None if the service does not know the job."""
    try:
        return str(describe_training_job(clients, job)["TrainingJobStatus"])
    except ServiceProblem as error:
        if not is_unknown(error.__cause__):
            raise
        return None


def _all(clients: Clients, size: int, **arguments: Any) -> Iterator[Mapping[str, Any]]:
    call = clients.sagemaker.list_training_jobs
    return newest_first(clients, call, "TrainingJobSummaries", _NO_LIST, size, **arguments)
