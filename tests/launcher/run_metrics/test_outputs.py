"""The lines and the OpenMetrics text of a run."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.run_metrics.lines import metrics_line
from smdp_launch.run_metrics.openmetrics import openmetrics
from smdp_launch.run_metrics.run import PHASES, RunMetrics
from tests.support.json_documents import validator
from tests.support.numbers.openmetrics import samples, value

JOB = "job-1"


def run_with(*events: tuple[str, dict[str, Any], str, int | None]) -> RunMetrics:
    run = RunMetrics()
    for second, (name, fields, host, worker) in enumerate(events):
        run.add(name, fields, host, worker, 100.0 + second)
    return run


def test_line_has_the_fields_of_the_event() -> None:
    fields = {
        "smdp_event": 1,
        "event": "step",
        "time": 5.5,
        "rank": 0,
        "step": 3,
        "steps": 9,
        "loss": "nan",
        "host": "x",
    }
    line = metrics_line(JOB, "step", fields, "algo-1", 0, 7.0)
    head = {"metrics": 1, "job": JOB, "time": 5.5, "host": "algo-1", "rank": 0, "event": "step"}
    assert line == {**head, "step": 3, "steps": 9, "loss": "nan"}
    validator("metrics").validate(line)


def test_line_of_an_event_without_a_time_has_that_of_the_log() -> None:
    for wrong in (None, True, "x", math.inf):
        line = metrics_line(JOB, "fault", {"event": "fault", "time": wrong}, "algo-2", None, 7.0)
        assert (line["time"], line["rank"]) == (7.0, None)
        validator("metrics").validate(line)


def test_run_without_events_is_valid() -> None:
    assert openmetrics(RunMetrics(), JOB) == "# EOF\n"


def test_windows_are_summed_to_counters() -> None:
    timing = {"window": 2.0, **{f"{phase}_s": 0.2 for phase in PHASES}, "steps": 4, "samples": 128, "load_workers": 2}
    engine = {"seconds": 5.0, "operations": 3, "bytes": 100, "wire_s": 0.5, "late": [{"rank": 3, "seconds": 0.25}]}
    resources = {
        "window": 5.0,
        "cores": 8,
        "cpu_s": 3.5,
        "net_sent": 7,
        "channel_train_bytes": 9,
        "channel_train_mode": "File",
    }
    text = openmetrics(
        run_with(
            ("workers_started", {"world_size": 4}, "algo-1", None),
            ("timing", timing, "algo-1", 0),
            ("timing", timing, "algo-1", 0),
            ("timing", timing, "algo-2", 2),
            ("engine", engine, "algo-1", 0),
            ("resources", resources, "algo-2", None),
            ("resources", {**resources, "cores": 4}, "algo-2", None),
            ("step", {"step": 7, "steps": 9, "loss": 0.5, "lr": "x"}, "algo-1", 0),
            ("result", {"accuracy": 0.75, "name": "x", "flag": True}, "algo-1", 0),
            ("worker_exit", {"rank": 1}, "algo-1", None),
        ),
        JOB,
    )
    assert value(text, "smdp_phase_seconds_total", rank="0", host="algo-1", phase="input") == 0.4
    assert value(text, "smdp_phase_seconds_total", rank="2", host="algo-2", phase="other") == 0.2
    assert value(text, "smdp_rank_samples_total", rank="0") == 256
    assert value(text, "smdp_loader_workers", rank="0") == 2
    assert value(text, "smdp_engine_seconds_total", phase="wire") == 0.5
    assert value(text, "smdp_late_seconds_total", late_rank="3") == 0.25
    assert value(text, "smdp_host_cores", host="algo-2") == 4
    assert value(text, "smdp_host_cpu_seconds_total", host="algo-2") == 7
    assert value(text, "smdp_channel_read_bytes_total", channel="train", mode="File") == 18
    assert value(text, "smdp_step", job=JOB) == 7
    assert value(text, "smdp_workers") == 4
    assert value(text, "smdp_metric", metric="loss") == 0.5
    assert value(text, "smdp_result", metric="accuracy") == 0.75
    assert value(text, "smdp_worker_failures_total") == 1
    assert not [one for one, _ in samples(text) if "lr" in one]


@given(
    st.dictionaries(
        st.text(max_size=20), st.floats() | st.integers() | st.text(max_size=5) | st.booleans(), max_size=8
    ),
    st.sampled_from(["step", "timing", "engine", "resources", "result", "worker_exit", "mine"]),
    st.sampled_from([None, 0, 3]),
)
def test_any_event_gives_valid_text(fields: dict[str, Any], name: str, worker: int | None) -> None:
    text = openmetrics(run_with((name, {"step": 1, "window": 1.0, "seconds": 1.0, **fields}, "algo-1", worker)), JOB)
    # What a script reports with a step is shown as it is: the format has NaN and infinity.
    assert all(math.isfinite(one) for (metric, _), one in samples(text).items() if metric != "smdp_metric")
