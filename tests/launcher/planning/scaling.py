"""Inputs of scaling studies for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smdp_launch.checking.job import check_job
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.scaling.inputs import Inputs
from smdp_launch.scaling.question import (
    Setting,
)
from smdp_launch.scaling.study import Study
from tests.conftest import JOB, write_job

P3DN = "ml.p3dn.24xlarge"
PRICES = "date: 2026-11-01\nsource: an example\nprices: {us-east-1: {ml.p3dn.24xlarge: 10, ml.p4d.24xlarge: 12.5}}\n"
DEFAULTS = {"fold_byte": 1.5e-10, "copy_byte": 2e-10}
#: Of a job that runs on AWS's own image.
ON_CPUS = (
    "\n".join(line for line in JOB.splitlines() if not line.startswith("image:"))
    .replace("ml.p4d.24xlarge", "ml.c5.xlarge")
    .replace("engine: native", "engine: gloo")
)
#: Small enough that the model answers immediately.
SMALL = ["--step-time", "0.02", "--parameters", "2M", "--instance-type", P3DN, "--hosts", "1,2,4"]


def spec_of(folder: Path, more: str = "") -> JobSpec:
    spec, _ = check_job(write_job(folder, JOB + more), environ={}).require()
    return spec


def study(found: Inputs, **more: Any) -> Study:
    return Study("job.yaml", found, Setting(DEFAULTS), 0.5, {}, **more)
