"""The jobs that have not ended and use a location of checkpoints. Two jobs that use one location at the same time
overwrite and delete each other's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.listing import newest_first
from smdp_launch.jobs.status.description import describe_training_job
from smdp_launch.jobs.status.resumptions import is_resumed_from
from smdp_launch.request.names import S3Location

_RUNNING = ("InProgress", "Stopping")
#: The fix for an account whose users may not search.
ALLOW_SEARCH = "allow yourself the action sagemaker:Search (docs/how-to/team/account.md)"
#: The name of a trial: that of its sweep, which has a time of its own, a number and random digits.
_TRIAL = re.compile(r"(?P<sweep>.+-\d{10}-[0-9a-f]{4})-\d{3,}-[0-9a-f]+")


def users_of(clients: Clients, where: str, besides: str | None = None) -> Iterator[str]:
    """The names of the training jobs of the account, in the region of the clients, that have not ended and whose
    checkpoints are at ``where``, or above or below it.

    Each is described, since the search may show a job as running for a minute after its end.

    Args:
        besides: the name of a job to leave out.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    what = f"the jobs that use {where} cannot be searched"
    for status in _RUNNING:
        filters = [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": status}]
        query: dict[str, Any] = {"Resource": "TrainingJob", "SearchExpression": {"Filters": filters}}
        for one in newest_first(clients, clients.sagemaker.search, "Results", what, **query):
            job = one["TrainingJob"]
            name = str(job["TrainingJobName"])
            if name == besides or not _overlap(job.get("CheckpointConfig", {}).get("S3Uri"), where):
                continue
            if describe_training_job(clients, name)["TrainingJobStatus"] in _RUNNING:
                yield name


def has_own_location(job: str, where: str, *, resumes: bool = False) -> bool:
    """Whether the location is made for ``job`` or its sweep, or, if it ``resumes`` another job, for the first one."""
    name = S3Location.parse(where).key.rstrip("/").rpartition("/")[2]
    trial = _TRIAL.fullmatch(job)
    return name == job or (trial is not None and trial["sweep"] == name) or (resumes and is_resumed_from(job, name))


def _overlap(one: str | None, other: str) -> bool:
    if one is None:
        return False
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)
