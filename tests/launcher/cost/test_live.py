"""The cost until now of a job that runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from smdp_launch.jobs import open_costs
from smdp_launch.jobs.records.lines import Launch
from smdp_launch.jobs.status.cost import usd
from smdp_launch.jobs.status.description import description
from tests.support.services.scripted_service import ScriptedService

#: A status, and how many minutes ago it began.
Steps = tuple[tuple[str, float], ...]


def running(steps: Steps, started: float) -> dict[str, Any]:
    """The description of a job whose training started so many minutes ago."""
    now = datetime.now(timezone.utc)

    def ago(minutes: float) -> datetime:
        return now - timedelta(minutes=minutes)

    return {
        "TrainingJobName": "j",
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": steps[-1][0],
        "SecondaryStatusTransitions": [{"Status": name, "StartTime": ago(minutes)} for name, minutes in steps],
        "CreationTime": ago(steps[0][1]),
        "TrainingStartTime": ago(started),
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
    }


FIRST: Steps = (("Starting", 90), ("Downloading", 80), ("Training", 79), ("Interrupted", 60))


@pytest.mark.parametrize(
    ("steps", "started", "billed"),
    [
        (FIRST[:3], 80, 80),
        (FIRST, 80, 20),
        ((*FIRST, ("Starting", 40), ("Pending", 39)), 80, 20),
        ((*FIRST, ("Starting", 40), ("Downloading", 30), ("Training", 29)), 80, 50),
        ((*FIRST, ("Starting", 40), ("Training", 10)), 10, 10),  # the service may report the last start
    ],
)
def test_time_without_hosts_after_an_interruption_costs_nothing(steps: Steps, started: float, billed: float) -> None:
    answer = running(steps, started)
    cost = usd(description(answer, datetime.now(timezone.utc)), 30.0)
    assert cost == pytest.approx(billed, abs=5)  # 1 USD a minute for both hosts; the test may be slow
    service = ScriptedService()
    service.fields = answer
    found = open_costs._now(service.clients(), [Launch("j", "us-east-1", "job.yaml", "", "")])
    assert found["j"].seconds == pytest.approx(billed * 60, abs=300)
