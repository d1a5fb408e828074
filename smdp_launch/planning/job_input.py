"""The forms in which Python code can pass a job - a path, a mapping, a JobSpec, a Plan - and their plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob, check_job, check_mapping, check_spec
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan
from smdp_launch.sizing.need import MeasuredInput

#: A job: the path of a job file, a mapping with the same values, or a JobSpec.
JobLike = str | os.PathLike[str] | Mapping[str, Any] | JobSpec


def check_any(
    job: JobLike,
    settings: Sequence[str] = (),
    local: LocalRequest | None = None,
    measured: Callable[[Path], MeasuredInput | None] = lambda _: None,
) -> CheckedJob:
    """The job with all its diagnostics.

    Args:
        settings: as after ``--set``, such as ``compute.max_run=3600``; for a path or a mapping.
        measured: what earlier runs of a job file read.

    Raises:
        ValueError: settings for a JobSpec, whose values are final.
    """
    if isinstance(job, JobSpec):
        if settings:
            raise ValueError("a JobSpec takes no settings: pass them to load()")
        document = job.document
        return check_spec(job, local, measured=measured(Path(document.file)) if document is not None else None)
    if isinstance(job, Mapping):
        return check_mapping(job, Path(), local, settings=settings)
    return check_job(Path(job), local, settings=settings, measured=measured(Path(job)))


def plan_of(job: JobLike | Plan) -> Plan:
    """The plan itself, or the plan of ``job``.

    Raises:
        JobFileRefused: the job has errors.
    """
    return job if isinstance(job, Plan) else make_plan(check_any(job))
