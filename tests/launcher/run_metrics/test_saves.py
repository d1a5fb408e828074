"""The saves that a job reports: the estimate for a spot notice, in `follow`, in `status` and as JSON."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from smdp_launch.cli.render.job.follow import FollowView
from smdp_launch.cli.render.job.status import RunNow, number_rows, status_json
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.run_metrics.run import RunMetrics
from tests.support.json_documents import validator
from tests.support.numbers.synthetic_runs import BEGAN, NAME, synthetic_metrics, synthetic_run

#: An event as `ShardedCheckpoints` prints it.
SAVED = {"step": 120, "bytes": 2_400_000_000, "host_bytes": 1_200_000_000, "hosts": 2, "seconds": 15.0, "stall_s": 0.2}


def run_with(*events: dict[str, Any]) -> RunMetrics:
    run = synthetic_metrics()
    for fields in events:
        run.add("checkpoint_saved", fields, "algo-1", 0, BEGAN.timestamp())
    return run


def test_estimate_is_based_on_the_longest_save() -> None:
    saves = run_with({**SAVED, "step": 60, "seconds": 35.0}, SAVED).saves
    assert (saves.saves, saves.step, saves.seconds, saves.longest) == (2, 120, 15.0, 35.0)
    assert saves.rate_needed == 1_200_000_000 / (115 - 35)
    assert saves.text() == (
        "2 saves, the last of step 120 with 2.4 GB in 15.0 s; "
        "a save fits into a spot notice if each host uploads 1.2 GB in 80 s, 15.0 MB/s"
    )


@pytest.mark.parametrize("seconds", [115.0, 400.0])
def test_save_longer_than_the_notice_does_not_fit(seconds: float) -> None:
    saves = run_with({**SAVED, "seconds": seconds}).saves
    assert saves.rate_needed is None
    assert saves.estimate().startswith("a save does not fit into the 115 s of a spot notice")


@pytest.mark.parametrize("wrong", [None, True, -1, math.nan, math.inf, "1", 1 << 70])
@pytest.mark.parametrize("name", ["step", "bytes", "seconds"])
def test_event_with_an_invalid_value_is_left_out(name: str, wrong: object) -> None:
    assert run_with({**SAVED, name: wrong}).saves.saves == 0


def test_status_shows_the_estimate() -> None:
    run = run_with(SAVED)
    assert dict(number_rows(run))["saves"] == run.saves.text()
    shown = synthetic_run(run)
    job = Job(NAME, "us-east-1", None, lambda: pytest.fail("a view makes no call"))
    document = status_json(job, shown.description, None, RunNow(run))
    validator("status").validate(document)
    assert document["numbers"]["saves"]["upload_bytes_per_second_needed"] == 12_000_000
    assert status_json(job, shown.description, None, RunNow(synthetic_metrics()))["numbers"]["saves"] is None


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_follower_shows_the_estimate_once(quiet: bool) -> None:
    """With the log, the line that the job prints is enough."""
    screen = io.StringIO()
    view = FollowView(None, Console(file=screen, width=200, highlight=False), quiet=quiet)
    for step in (60, 120):
        view.show(JobEvent("algo-1", "checkpoint_saved", {**SAVED, "step": step}, int(BEGAN.timestamp() * 1000)))
    expected = "checkpoints: 1 save, the last of step 60 with 2.4 GB in 15.0 s; a save fits into a spot notice if "
    assert screen.getvalue().count(expected) == int(quiet)
    assert screen.getvalue().count("\n") == int(quiet)
