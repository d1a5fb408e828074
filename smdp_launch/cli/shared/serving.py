"""The way of a command from a name to the service that trained a model, or that serves it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smdp_launch.errors import Refused

if TYPE_CHECKING:
    from smdp_launch.jobs.records.endpoints import Served
    from smdp_launch.jobs.service.clients import Connect


@dataclass(frozen=True)
class Target:
    """The endpoint, or batch transform, that a command is about.

    Args:
        where: the AWS region, or ``local``.
        known: the deployment, if this folder has it.
        connect: opens the connection to its service.
    """

    name: str
    where: str
    known: Served | None
    connect: Connect

    @property
    def kind(self) -> str:
        """As ``serve.kind`` of the job file; ``realtime`` if it is not known."""
        return self.known.kind if self.known is not None else "realtime"


@dataclass(frozen=True)
class TrainedJob:
    """A training job whose model is to be deployed.

    Args:
        where: the AWS region, or ``local``.
        state: as in the history.
        job_file: the file that it was launched from.
    """

    name: str
    where: str
    state: str | None
    job_file: Path


def trained_job(name: str | None, region: str | None, *, is_local: bool) -> TrainedJob:
    """The job for a NAME on the command line.

    Raises:
        Refused: there is no such job, or it is not where the user wants to deploy.
    """
    from smdp_launch.api import attach
    from smdp_launch.jobs.job import UNKNOWN_REGION
    from smdp_launch.jobs.records.history import LOCAL, find_launch

    job = attach(name, region=region)
    launch = find_launch(job.name)
    if job.where == UNKNOWN_REGION:
        raise Refused(f"the region of {job.name} is not known: give --region")
    if is_local and job.where != LOCAL:
        raise Refused(f"{job.name} ran on AWS in {job.where}: deploy it without --local")
    if not is_local and job.where == LOCAL:
        raise Refused(f"{job.name} ran on this machine: add --local, or launch it on AWS first")
    state = launch.state if launch is not None else None
    return TrainedJob(job.name, job.where, state, Path(launch.job_file if launch is not None else "job.yaml"))


def served_endpoint(name: str | None, region: str | None, *, or_job: bool = False) -> Target:
    """The endpoint for a NAME on the command line.

    Args:
        region: of an endpoint that was not deployed from this folder.
        or_job: also accept a job of this folder that is not deployed, or not any more.

    Raises:
        Refused: no endpoint of this folder exists, or none has this name and no region is given.
    """
    from smdp_launch.jobs.records.current_folder import require_current_folder
    from smdp_launch.jobs.records.endpoints import resolve_endpoint, served
    from smdp_launch.jobs.records.history import resolve_name
    from smdp_launch.jobs.service.clients import connection

    known = resolve_endpoint(name)
    if known is not None and region in (None, known.where):
        return Target(known.endpoint, known.where, known, connection(known.where, known.state))
    if name is not None and region is not None:
        return Target(name, region, None, connection(region))
    launch = resolve_name(name) if or_job and region is None else None
    if launch is not None:
        return Target(launch.job, launch.where, None, connection(launch.where, launch.state))
    require_current_folder()
    here = [one.endpoint for one in reversed(served())]
    if name is None:
        raise Refused("no endpoint of this folder exists: `smdp-launch deploy` deploys the latest job")
    listed = f"this folder has {', '.join(here[:3])}" if here else "none was deployed from this folder"
    raise Refused(f"there is no endpoint {name}: {listed}; give --region for one that was deployed elsewhere")
