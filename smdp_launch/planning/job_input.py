"""The forms in which Python code can pass a job - a path, a mapping, a JobSpec, a Plan - and their plans."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob, check_job, check_mapping, check_spec
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan
from smdp_launch.sizing.need import MeasuredInput
from smdp_launch.units import listed

#: A job: the path of a job file, a mapping with the same values, or a JobSpec.
JobLike = str | os.PathLike[str] | Mapping[str, Any] | JobSpec

#: Values that override those of a job: texts as after ``--set``, or a mapping such as ``{"compute.max_run": 3600}``.
Settings = Sequence[str] | Mapping[str, Any]


def setting_texts(settings: Settings) -> list[str]:
    """The settings as after ``--set``.

    Raises:
        TypeError: they are one text, or a mapping has a value that is no text, number, list, mapping or path.
        ValueError: a mapping has a number that is not finite.
    """
    if isinstance(settings, str):
        raise TypeError('settings must be a list, such as ["compute.max_run=60"]')
    if isinstance(settings, Mapping):  # JSON is YAML, as which the value of a setting is read
        return [
            f"{key}={json.dumps(value, default=os.fspath, ensure_ascii=False, allow_nan=False)}"
            for key, value in settings.items()
        ]
    return list(settings)


class PlanOptions(NamedTuple):
    """The options of `smdp_launch.api.plan`, which a launch takes too."""

    settings: Settings = ()
    local: bool = False
    hosts: int | None = None
    workers_per_host: int | None = None
    data: Mapping[str, str | os.PathLike[str]] | None = None

    @classmethod
    def of(cls, settings: Settings, *others: Any) -> PlanOptions:
        return cls(tuple(setting_texts(settings)), *others)

    def require_none(self, message: str) -> None:
        """Raises:
        ValueError: an option has another value than its default. Its name replaces ``{}`` in the message.
        """
        defaults = PlanOptions()
        in_use = [name for name, value in self._asdict().items() if value != getattr(defaults, name)]
        if in_use:
            raise ValueError(message.format(listed(in_use)))


def require_positive(**numbers: int | None) -> None:
    """Raises:
    ValueError: a number is below 1.
    """
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be 1 or more")


def check_any(
    job: JobLike,
    settings: Settings = (),
    local: LocalRequest | None = None,
    measured: Callable[[Path], MeasuredInput | None] = lambda _: None,
) -> CheckedJob:
    """The job with all its diagnostics.

    Args:
        settings: for a path or a mapping.
        measured: what earlier runs of a job file read.

    Raises:
        TypeError: as for `setting_texts`.
        ValueError: settings for a JobSpec, whose values are final.
    """
    texts = setting_texts(settings)
    if isinstance(job, JobSpec):
        if texts:
            raise ValueError("a JobSpec takes no settings: pass them to load()")
        document = job.document
        return check_spec(job, local, measured=measured(Path(document.file)) if document is not None else None)
    if isinstance(job, Mapping):
        return check_mapping(job, Path(), local, settings=texts)
    return check_job(Path(job), local, settings=texts, measured=measured(Path(job)))


def plan_of(job: JobLike | Plan) -> Plan:
    """The plan itself, or the plan of ``job``.

    Raises:
        JobFileRefused: the job has errors.
    """
    return job if isinstance(job, Plan) else make_plan(check_any(job))
