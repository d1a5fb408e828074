"""The jobs that have not ended and use a location of checkpoints. Two jobs that use one location at the same time
overwrite and delete each other's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.listing import newest_first
from smdp_launch.jobs.status.resumptions import is_resumed_from
from smdp_launch.request.names import S3Location

_RUNNING = ("InProgress", "Stopping")


def users_of(clients: Clients, where: str) -> Iterator[str]:
    """The names of the training jobs of the account, in the region of the clients, that have not ended and whose
    checkpoints are at ``where``, or above or below it.

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
            if _overlap(job.get("CheckpointConfig", {}).get("S3Uri"), where):
                yield str(job["TrainingJobName"])


def has_own_location(job: str, where: str) -> bool:
    """Whether the location is made for ``job``, for the first of the jobs that it resumes, or for its sweep."""
    name = S3Location.parse(where).key.rstrip("/").rpartition("/")[2]
    return job == name or job.startswith(f"{name}-") or is_resumed_from(job, name)


def _overlap(one: str | None, other: str) -> bool:
    if one is None:
        return False
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)
