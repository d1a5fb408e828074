"""A job in any form that Python has for it - a path, a mapping, a JobSpec, a Plan - to its plan."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob, check_job, check_mapping, check_spec
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import make_plan

#: What a person may hand over as a job: the path of a job file, a mapping that says the same, or what was made of it.
JobLike = str | os.PathLike[str] | Mapping[str, Any] | JobSpec


def checked(job: JobLike, settings: Sequence[str] = (), local: LocalRequest | None = None) -> CheckedJob:
    """The job with all that is known to be wrong with it.

    Args:
        settings: as after ``--set``, such as ``compute.max_run=3600``; for a path or a mapping.

    Raises:
        ValueError: settings for a JobSpec, which has been read already.
    """
    if isinstance(job, JobSpec):
        if settings:
            raise ValueError("a JobSpec takes no settings: give them to load()")
        return check_spec(job, local)
    if isinstance(job, Mapping):
        return check_mapping(job, Path(), local, settings=settings)
    return check_job(Path(job), local, settings=settings)


def planned(job: CheckedJob, local: LocalRun | None = None) -> Plan:
    """Its plan, with a name of now.

    Raises:
        JobFileRefused: the job has errors.
    """
    return make_plan(job, datetime.now(timezone.utc), secrets.randbelow(1 << 16), local)


def plan_of(job: JobLike | Plan) -> Plan:
    """The plan itself, or the one of ``job``.

    Raises:
        JobFileRefused: the job has errors.
    """
    return job if isinstance(job, Plan) else planned(checked(job))
