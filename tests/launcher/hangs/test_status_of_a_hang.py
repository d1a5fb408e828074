"""`status` reads the end of a log. It finds a hang whose report is older."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from smdp_launch.jobs.run import recent_metrics
from smdp_launch.jobs.status.description import describe
from smdp_launch.run_metrics.run import RunMetrics
from tests.support.services.scripted_service import BEGAN, ScriptedService


def line(at: float, prefix: str, event: str, **fields: Any) -> tuple[float, str]:
    return at, f"[{prefix}] {json.dumps({'smdp_event': 1, 'event': event, **fields})}"


def timing(at: int, steps: int) -> tuple[float, str]:
    return line(at, "algo-1:0", "timing", rank=0, window=5.0, steps=steps, batches=steps, forward_s=5.0)


def recent(lines: list[tuple[float, str]], until: float) -> tuple[RunMetrics, int]:
    """The numbers of a job that ended at this second, and how often the log was read."""
    service = ScriptedService()
    service.now = service.ended = until
    service.lines = lines
    status = {"Status": "Training", "StartTime": BEGAN, "EndTime": BEGAN + timedelta(seconds=until)}
    service.fields = {"SecondaryStatusTransitions": [status]}
    calls: list[str] = []
    described = describe(service.clients(), "j")
    service.before = calls.append
    metrics = recent_metrics(service.clients(), described)
    assert isinstance(metrics, RunMetrics)
    return metrics, calls.count("DescribeLogStreams")


@pytest.mark.parametrize(("lasts", "reads"), [(90, 1), (600, 2), (7200, 3)])
def test_hang_is_found_however_long_it_lasts(lasts: int, reads: int) -> None:
    ranks = [{"rank": 0, "idle_s": 60.0, "phase": "forward", "doing": "is in forward", "waits_for": []}]
    reported = line(1060, "algo-1", "hang", what="reported", limit=60, ranks=ranks)
    windows = [timing(at, 50 if at <= 1000 else 0) for at in range(5, 1000 + lasts, 5)]
    metrics, calls = recent(sorted([*windows, reported]), 1000 + lasts)
    assert metrics.hang is not None
    assert datetime.fromtimestamp(metrics.hang.since, timezone.utc) == BEGAN + timedelta(seconds=1000)
    assert calls == reads


def test_log_of_a_long_job_without_a_recent_step_is_not_read_to_its_start() -> None:
    until = 86_400
    metrics, calls = recent([timing(at, 50 if at <= until - 1800 else 0) for at in range(60, until, 60)], until)
    assert (metrics.hang, calls) == (None, 3)
    assert metrics.began == pytest.approx((BEGAN + timedelta(seconds=until, minutes=-200)).timestamp(), abs=60)


def test_log_of_a_job_that_is_not_measured_is_not_read_to_its_start() -> None:
    lines = [(float(at), f"[algo-1:0] epoch {at}") for at in range(0, 7200, 10)]
    assert recent(lines, 7200)[1] == 2
