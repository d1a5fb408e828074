"""The `time` row of a run covers the same part of it as the verdict."""

from __future__ import annotations

import pytest

from smdp_launch.diagnosis.time_shares import steady_shares, time_text
from smdp_launch.diagnosis.verdict import diagnose
from smdp_launch.run_metrics.summary import time_shares
from tests.support.numbers.run_events import BEGAN, WINDOW, Step, metrics_of, run_events

WAITS: Step = {"input": 0.06, "forward": 0.04}


def test_row_leaves_out_the_warm_up_as_the_verdict_does() -> None:
    events = run_events(lambda _: WAITS, world_size=1)
    # The first five seconds are spent outside of the measured phases.
    start = {"rank": 0, "window": WINDOW, "steps": 1, "batches": 1, "other_s": WINDOW}
    metrics = metrics_of([(events[0]), ("timing", start, "algo-1", 0, BEGAN), *events[1:]])
    verdict = diagnose(metrics)
    assert verdict.warm_up == pytest.approx(WINDOW)
    assert verdict.share == pytest.approx(0.6)
    assert steady_shares(metrics)["input"] == pytest.approx(verdict.share)
    assert time_shares(metrics)["input"] == pytest.approx(0.6 * 10 / 11)
    assert time_text(metrics) == "input 60 %, computing 40 % (all workers, without the first 5 s)"


def test_row_names_the_whole_run_where_no_worker_reports_a_step() -> None:
    loading = {"rank": 0, "window": WINDOW, "input_s": 4, "other_s": 1}
    metrics = metrics_of([("timing", loading, "algo-1", 0, BEGAN + WINDOW)])
    assert time_text(metrics) == "input 80 %, other 20 % (of the whole run: no worker reported a step)"
    assert time_text(metrics_of([])) == ""
