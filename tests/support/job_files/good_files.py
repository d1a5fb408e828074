"""The sound job files in tests/launcher/good, and checks of their requests with the service's model."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from botocore.session import Session
from botocore.validate import ParamValidator

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.planning.prepare import make_plan
from smdp_launch.request.limits import walk
from tests.conftest import ROOT

GOOD = ROOT / "tests/launcher/good"
FILES = sorted(GOOD.glob("*.yaml"))
NOW = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone.utc)


def request_of(job: CheckedJob) -> dict[str, Any]:
    """The request, with the same job name in every call."""
    return make_plan(job, NOW, 0xBEEF).request


def refused_by_service(request: dict[str, Any]) -> list[str]:
    """The errors of botocore's own validation and of the service's limits for ``request``."""
    report = ParamValidator().validate(request, _input_shape())
    return [*report.generate_report().splitlines(), *(f"{one.path}: {one.message}" for one in walk(request))]


@functools.cache
def _input_shape() -> Any:
    return Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape


def workshop(folder: Path) -> Path:
    """Copy the files' scripts and data to ``folder``; return the path for a job file there."""
    for name in ("scripts", "digits", "tables"):
        shutil.copytree(GOOD / name, folder / name)
    return folder / "job.yaml"


def checked(path: Path, text: str, environ: dict[str, str] | None = None) -> CheckedJob:
    path.write_text(text)
    return check_job(path, environ=environ or {})


def values(data: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value below ``data`` with its location, parents first."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*at, key), value
        yield from values(value, (*at, key))
