"""The plan of a job file."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.checking.job import check_job
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import make_plan

NOW = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone.utc)


def plan_of(path: Path, local: LocalRun | None = None) -> Plan:
    return make_plan(check_job(path), NOW, 0xBEEF, local)
