from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.checking.job import CheckedJob


def check(job_file: Path, request: LocalRequest | None = None, *, settings: Sequence[str]) -> CheckedJob:
    """Check the job file; with a spinner, since the scan of a large source folder takes seconds."""
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.jobs.measured_input import measured_input

    with busy(f"checking {job_file} and its source folder"):
        return check_job(job_file, request, settings=settings, measured=measured_input(job_file))
