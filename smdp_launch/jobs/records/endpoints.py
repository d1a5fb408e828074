"""The deployments from one folder, in the history of its jobs.

A deployment has one line that is written before its first request, and one more when all of it is deleted. Simultaneous
deployments of a job have lines with different runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.errors import Refused
from smdp_launch.jobs.records.history import LATEST, entries, write_entry


@dataclass(frozen=True)
class Served:
    """A deployment.

    Args:
        endpoint: the name of the endpoint, its configuration and its model, or of the transform job.
        kind: as ``serve.kind`` of the job file.
        where: the AWS region, or "local".
        deployment_hash: tag of all its resources.
        deployed: the time of the deployment.
        hosts: None for a serverless endpoint.
        hourly_usd: USD per hour of all hosts; None without a price.
        expires: when it is to be deleted; None without a lifetime.
        schedule: the schedule that deletes it then; None without one.
        packed: S3 URI of the model with the serving script; None if the model is served as it is.
        content_type: of its requests; None if the job file has none.
        inputs: S3 location of the requests of an asynchronous endpoint; None for the other kinds.
        state: as that of a launch.
        instance_type: of its hosts; None for a serverless endpoint, and in the lines of older versions.
        keeps_cloud: the local cloud runs only for local endpoints, and ends with the last of them.
        run: tag of all its resources; None in the lines of older versions.
    """

    endpoint: str
    kind: str
    where: str
    deployment_hash: str
    deployed: str
    hosts: int | None = None
    hourly_usd: float | None = None
    expires: str | None = None
    schedule: str | None = None
    packed: str | None = None
    content_type: str | None = None
    inputs: str | None = None
    state: str | None = None
    keeps_cloud: bool = False
    instance_type: str | None = None
    run: str | None = None

    @property
    def deployed_at(self) -> datetime:
        return _time(self.deployed)

    @property
    def expires_at(self) -> datetime | None:
        return _time(self.expires) if self.expires is not None else None


@dataclass(frozen=True)
class Deleted:
    """A deployment of which nothing is left.

    Args:
        run: of a deployment that failed; None for all deployments with the name.
    """

    endpoint: str
    deleted: str
    run: str | None = None

    @property
    def deleted_at(self) -> datetime:
        return _time(self.deleted)


def record_served(entry: Served) -> None:
    """Raises:
    EnvironmentProblem: it cannot be written.
    """
    write_entry(entry, "the deployment")


def record_deleted(endpoint: str, now: datetime, run: str | None = None) -> None:
    """Record that ``endpoint`` is deleted, if it was deployed from this folder.

    Args:
        run: of the only deployment of which nothing is left.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    if find_served(endpoint) is not None:
        write_entry(Deleted(endpoint, exact_time(now), run), "the deletion")


def served() -> list[Served]:
    """The deployments from the current folder that are not recorded as deleted, in order."""
    deletions = list(entries(Deleted))
    failed = {one.run: one.deleted_at for one in deletions if one.run is not None}
    by_name: dict[str, Served] = {}
    for one in entries(Served):
        if one.run in failed and failed[one.run] >= one.deployed_at:
            continue
        by_name.pop(one.endpoint, None)
        by_name[one.endpoint] = one
    ends = {one.endpoint: _time(one.deleted) for one in deletions if one.run is None}
    return [one for name, one in by_name.items() if name not in ends or ends[name] < one.deployed_at]


def deployments(beside: Path | None = None) -> list[tuple[Served, datetime | None]]:
    """All deployments from the current folder, or from ``beside``, in order, each with the time of its deletion."""
    deletions = list(entries(Deleted, beside))
    found: list[tuple[Served, datetime | None]] = []
    for one in entries(Served, beside):
        its = [gone for gone in deletions if gone.endpoint == one.endpoint and gone.run in (None, one.run)]
        after = [gone.deleted_at for gone in its]
        end = min((moment for moment in after if moment >= one.deployed_at), default=None)
        if any(other.endpoint == one.endpoint and ended == end for other, ended in found):
            continue  # a repeated deployment
        found.append((one, end))
    return found


def find_served(endpoint: str) -> Served | None:
    return next((one for one in served() if one.endpoint == endpoint), None)


def resolve_endpoint(name: str | None) -> Served | None:
    """The deployment for a NAME on the command line: a whole name, a unique prefix, or ``latest``, the default.

    Raises:
        Refused: several endpoints have this prefix.
    """
    known = served()
    if name in (None, LATEST):
        return known[-1] if known else None
    exact = [one for one in known if one.endpoint == name]
    matching = exact or [one for one in known if name and one.endpoint.startswith(name)]
    if len(matching) > 1:
        raise Refused(f"{len(matching)} endpoints begin with {name}: {', '.join(one.endpoint for one in matching)}")
    return matching[0] if matching else None


def exact_time(moment: datetime) -> str:
    """With microseconds: a deployment may follow a deletion at once."""
    return moment.astimezone(timezone.utc).isoformat()


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
