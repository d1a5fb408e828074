"""A job file with five errors."""

from __future__ import annotations

from tests.conftest import JOB

FIVE_ERRORS = (
    JOB.replace("name: small", "nme: small")
    .replace('version: "2.0.1"', "version: 2.0")
    .replace("entry: train.py", "entry: trian.py")
    .replace("ml.p4d.24xlarge", "ml.p3.24xlarge")
    .replace("max_run: 600", "max_run: long")
)
