"""The launcher from Python: the verbs of the command line as functions, each taking what the one before returned.

    job file, mapping --load--> JobSpec --plan--> Plan --launch--> Job

Nothing here prints or asks. Up to ``plan`` there is no network and no credential; ``launch`` costs money unless the
plan is one of a run on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob
from smdp_launch.diagnostics import Diagnostics, closest
from smdp_launch.errors import Refused
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.job import UNKNOWN_REGION, Job
from smdp_launch.jobs.preflight.run import Preflight, require_account
from smdp_launch.jobs.preflight.run import preflight as ask_account
from smdp_launch.jobs.records.history import LOCAL, find_launch, launches, meant, remember_plan
from smdp_launch.jobs.records.local_clouds import file_systems, local_cloud_folder
from smdp_launch.jobs.service.clients import connect_aws, connection, local_cloud
from smdp_launch.jobs.submit import seed, submit
from smdp_launch.localcloud.client import connect as localcloud
from smdp_launch.notebook import cards
from smdp_launch.planning.given import JobLike, checked, plan_of, planned
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import local_run, with_isolation
from smdp_launch.planning.saved import is_saved_plan, require_unchanged
from smdp_launch.planning.saved import load as load_saved
from smdp_launch.rules.request.placeholders import to_fill_in

__all__ = ["Job", "JobSpec", "Plan", "attach", "cards", "launch", "load", "plan", "preflight", "validate"]


def validate(job: JobLike, *, settings: Sequence[str] = ()) -> Diagnostics:
    """Everything that is known to be wrong with a job, errors and warnings, at once.

    Args:
        job: path of a job file, a mapping that says the same, or a JobSpec.
        settings: as after ``--set``, such as ``compute.max_run=3600``; for a path or a mapping.

    Examples:
        >>> for one in validate({"schema": 1, "name": "no way"})[:2]:
        ...     print(one.code, one.message)
        SMDP202 the job file needs "framework"
        SMDP202 the job file needs "script"
    """
    return Diagnostics(checked(job, settings).diagnostics)


def load(job: str | PathLike[str] | Mapping[str, object], *, settings: Sequence[str] = ()) -> JobSpec:
    """Read a job, with every layer around it (docs/job-file.md), and refuse it if there are errors.

    Args:
        job: path of a job file, or a mapping that says the same; paths in a mapping start from the current folder.
        settings: as after ``--set``, such as ``compute.max_run=3600``.

    Raises:
        JobFileRefused: the job has errors; ``diagnostics`` has all of them.

    Examples:
        >>> spec = load("job.yaml", settings=["compute.max_run=3600"])
        >>> spec.name, spec.compute.instance_count, spec.compute.max_run
        ('small', 2, 3600)
    """
    spec, _ = checked(job, settings).require()
    return spec


def plan(
    job: JobLike,
    *,
    settings: Sequence[str] = (),
    local: bool = False,
    hosts: int | None = None,
    workers_per_host: int | None = None,
    data: Mapping[str, str | PathLike[str]] | None = None,
) -> Plan:
    """What a launch would submit, and what follows from it. No network, no credentials.

    Args:
        job: path of a job file, a mapping that says the same, or a JobSpec.
        settings: as after ``--set``; for a path or a mapping.
        local: plan a run on this machine.
        hosts: with ``local``; as many of the job's own as fit by default.
        workers_per_host: with ``local``; one for each GPU, as far as there are cores, by default.
        data: with ``local``: channel to a folder or file of this machine, before the job file's ``local.channels``.

    Raises:
        JobFileRefused: the job has errors; ``diagnostics`` has all of them.
        ValueError: ``hosts``, ``workers_per_host`` or ``data`` without ``local``.

    Examples:
        >>> made = plan("job.yaml")
        >>> made.request["ResourceConfig"]
        {'VolumeSizeInGB': 30, 'InstanceType': 'ml.p4d.24xlarge', 'InstanceCount': 2}
        >>> len(made.ranks), made.billing.instance_hours
        (16, 0.3333333333333333)
    """
    asked = LocalRequest(hosts, workers_per_host, {name: Path(path) for name, path in (data or {}).items()})
    if local:
        asked = asked._replace(file_systems=file_systems())
        return _plan_here(checked(job, settings, asked), asked)
    if asked != LocalRequest():
        raise ValueError("hosts, workers_per_host and data go with local=True")
    return planned(checked(job, settings))


def preflight(job: Plan | JobLike, *, ignore: Collection[str] = ()) -> Preflight:
    """Ask the AWS account what would stand in a launch's way; nothing is made or changed (docs/preflight.md).

    Args:
        ignore: codes of checks to leave out.

    Raises:
        JobFileRefused: the job has errors.
        EnvironmentProblem: no credentials.
        ServiceProblem: AWS cannot be reached.
    """
    made = _plan(job)
    return ask_account(connect_aws(made.spec.region), made, ignore)


def launch(job: Plan | JobLike, *, ignore: Collection[str] = ()) -> Job:
    """Submit a plan, or the plan of a job, or one that ``plan --out`` saved; returns while the job runs.

    A plan of a run on this machine starts the private local cloud of the current folder. The job's name is written to
    ``.smdp/history.jsonl`` here before it is submitted. A plan that is launched twice is still one job.

    Args:
        ignore: codes of the checks of the AWS account that are left out (docs/preflight.md).

    Raises:
        JobFileRefused: the job has errors.
        Refused: placeholders are left in it, the source folder changed since the plan was made, or the account is not
            ready for it.
        EnvironmentProblem: no credentials, or a local cloud that does not start.
        ServiceProblem: the service refused.

    Examples:
        >>> job = launch(plan("job.yaml", local=True, hosts=2, workers_per_host=1))
        >>> job.wait(timeout=120).summary
        'completed'
    """
    made = _plan(job)
    require_unchanged(made)
    return _launch_on_aws(made, ignore) if made.local is None else _launch_here(made)


def attach(name: str | None = None, *, region: str | None = None) -> Job:
    """The job of a launch that was made before, found by its name; no service is asked yet.

    Args:
        name: of a job, or the beginning of only one that was launched from the current folder; ``latest``, the default,
            is the last one that was.
        region: the AWS region of a job that was not launched from this folder.

    Raises:
        Refused: no job was launched from this folder, none has this name and no region is given, or several begin so.
        EnvironmentProblem: it ran in a local cloud whose state folder is gone.

    Examples:
        >>> attach().status()
        'Completed'
    """
    launched = meant(name) if region is None else find_launch(name)
    job = launched.job if launched is not None else name
    if job is None:
        raise Refused("no job was launched from this folder: give the name of one")
    if launched is None and region is None:
        raise Refused(_unknown(job))
    where = launched.where if region is None and launched is not None else region
    state = launched.state if launched is not None else None
    return Job(job, where or UNKNOWN_REGION, None, connection(where, state))


def _unknown(name: str) -> str:
    """Why ``name`` is no job of this folder."""
    elsewhere = "give --region for a job that was launched from elsewhere"
    known = [one.job for one in reversed(launches())]
    if not known:
        return f"there is no job {name}: none was launched from this folder; {elsewhere}"
    listed = ", ".join(known[:3]) + (" and more (`smdp-launch list`)" if len(known) > 3 else "")
    match = closest(name, known)
    guess = f'did you mean "{match}"?' if match is not None else f"this folder has {listed};"
    return f"there is no job {name}: {guess} {elsewhere}"


def _plan(job: Plan | JobLike) -> Plan:
    if isinstance(job, str | PathLike) and is_saved_plan(Path(job)):
        return load_saved(Path(job))
    return plan_of(job)


def _launch_on_aws(made: Plan, ignore: Collection[str]) -> Job:
    if made.placeholders:
        raise Refused(f"{to_fill_in(made.placeholders)}; local=True runs the job as it is", made.launch_problems)
    region = made.spec.region
    clients = connect_aws(region)
    require_account(clients, made, ignore)
    remember_plan(made, datetime.now(timezone.utc))
    submit(clients, made)
    return Job(made.job, region, made.spec.output.s3, lambda: nullcontext(clients))


def _plan_here(job: CheckedJob, asked: LocalRequest) -> Plan:
    run = local_run(job, asked, len(os.sched_getaffinity(0)))
    return planned(job, with_isolation(run, job, localcloud.isolation().reason))


def _launch_here(made: Plan) -> Job:
    state = local_cloud_folder()
    connect = local_cloud(state)
    with connect() as clients:
        seed(clients, made)
        remember_plan(made, datetime.now(timezone.utc), state)
        submit(clients, made)
    return Job(made.job, LOCAL, made.spec.output.s3, connect)
