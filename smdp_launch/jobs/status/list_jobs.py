"""Many jobs at once: one list of the service's, not a question for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from typing import Any

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.records.history import End, Launch, ends, launches, remember_end
from smdp_launch.jobs.records.outcome import ENDED
from smdp_launch.jobs.service.clients import Clients, connection, tell_nobody
from smdp_launch.jobs.service.retry import ask
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import describe

_PAGE = 100  # the service's most
_CLOCKS = timedelta(days=1)  # that this machine's clock may be ahead of the service's


@dataclass(frozen=True)
class _Summary:
    """What the service's list tells of a job."""

    job: str
    status: str
    created: datetime


@dataclass(frozen=True)
class Listed:
    """A job with what is known of it. ``status`` is None where nobody could tell, for the reason in ``problem``.

    Args:
        summary: the status in words, such as ``stopped at its maximum run time``.
        time: of the launch, or of the service's taking it.
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


def jobs_of_region(region: str, most: int, tell: Callable[[Waiting], None] = tell_nobody) -> list[Listed]:
    """The account's training jobs there, the newest first.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: no credentials, or such as have expired.
    """
    with connection(region)() as clients:
        clients.tell = tell
        found = islice(_all(clients, min(most, _PAGE)), most)
        return [Listed(one.job, region, one.created.astimezone(timezone.utc), one.status, one.status) for one in found]


def jobs_here(most: int, tell: Callable[[Waiting], None] = tell_nobody) -> list[Listed]:
    """Those that were launched from the current folder, the last first; where somebody has to be asked and cannot be,
    the status is unknown."""
    wanted, ended = launches()[-most:][::-1], ends()
    statuses, problems = _statuses([one for one in wanted if one.job not in ended], tell)
    ended = ends()  # with those that were found to have ended just now
    return [_listed(one, ended.get(one.job), statuses.get(one.job), problems.get(_place(one))) for one in wanted]


#: A region, or a local cloud by its state folder: arguments of `connection`.
_Place = tuple[str, str | None]


def _place(launch: Launch) -> _Place:
    return launch.where, launch.state


def _statuses(running: Sequence[Launch], tell: Callable[[Waiting], None]) -> tuple[dict[str, str], dict[_Place, str]]:
    """By job, and the reasons by place for what could not be asked. Ends that are found are written down."""
    statuses: dict[str, str] = {}
    problems: dict[_Place, str] = {}
    for place in dict.fromkeys(_place(one) for one in running):
        try:
            with connection(*place)() as clients:
                clients.tell = tell
                found = _find(clients, [one for one in running if _place(one) == place])
                _remember_ends(clients, found)
        except SmdpError as error:
            problems[place] = str(error)
        else:
            statuses |= found
    return statuses, problems


def _remember_ends(clients: Clients, statuses: Mapping[str, str]) -> None:
    for job in (job for job, status in statuses.items() if status in ENDED):
        outcome = describe(clients, job).outcome
        if outcome is not None:
            remember_end(job, outcome, datetime.now(timezone.utc))


def _listed(launch: Launch, end: End | None, status: str | None, problem: str | None) -> Listed:
    time = datetime.fromisoformat(launch.time)
    if end is not None:
        paid = (launch.hosts, end.billable_seconds, end.usd, launch.most_usd)
        return Listed(launch.job, launch.where, time, end.ended, end.summary, *paid)
    summary = status or ("unknown" if problem is not None else "never taken by the service")
    return Listed(
        launch.job, launch.where, time, status, summary, launch.hosts, most_usd=launch.most_usd, problem=problem
    )


def _find(clients: Clients, launched: Sequence[Launch]) -> dict[str, str]:
    """The statuses of those that the service knows; jobs that are older than all of them are not asked for."""
    jobs = {one.job for one in launched}
    since = min(datetime.fromisoformat(one.time) for one in launched) - _CLOCKS
    found: dict[str, str] = {}
    for one in _all(clients, _PAGE, CreationTimeAfter=since):
        if one.job in jobs:
            found[one.job] = one.status
        if len(found) == len(jobs):
            break
    return found


def _all(clients: Clients, size: int, **chosen: Any) -> Iterator[_Summary]:
    place = chosen
    while True:
        answer = ask(clients, "the jobs cannot be listed", partial(_page, clients, size, place))
        for one in answer["TrainingJobSummaries"]:
            yield _Summary(str(one["TrainingJobName"]), str(one["TrainingJobStatus"]), one["CreationTime"])
        if "NextToken" not in answer:
            return
        place = {**chosen, "NextToken": answer["NextToken"]}


def _page(clients: Clients, size: int, place: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = clients.sagemaker.list_training_jobs(
        SortBy="CreationTime", SortOrder="Descending", MaxResults=size, **place
    )
    return answer
