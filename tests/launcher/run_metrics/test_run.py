"""The series of a run: what they keep of its events, and that their size is bounded."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.run_metrics.run import PHASES, RunMetrics
from smdp_launch.run_metrics.series import MetricSeries, Window, WindowSeries


def timing(window: float, **fields: float) -> dict[str, float]:
    return {"window": window, **dict.fromkeys((f"{phase}_s" for phase in PHASES), 0.0), **fields}


@given(st.lists(st.floats(0, 1e6), max_size=300), st.sampled_from([2, 4, 16]))
def test_sums_of_a_window_series_do_not_depend_on_its_size(values: list[float], most: int) -> None:
    series = WindowSeries(most)
    for second, value in enumerate(values):
        series.add(Window(second, second + 1, {"input_s": value}))
    assert len(series.windows) <= most
    total = series.total()
    if not values:
        assert total is None
        return
    assert total is not None
    assert math.isclose(total.values["input_s"], sum(values), rel_tol=1e-9, abs_tol=1e-9)
    assert (total.begin, total.end) == (0, len(values))
    assert all(one.end == after.begin for one, after in zip(series.windows, series.windows[1:], strict=False))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([2, 4, 16]))
def test_bins_of_a_metric_keep_mean_and_extremes(values: list[float], most: int) -> None:
    series = MetricSeries(most)
    for step, value in enumerate(values):
        series.add(float(step), step, value)
    assert len(series.bins) <= most
    assert series.last == values[-1]
    assert series.bins[-1].step == len(values) - 1
    assert min(one.least for one in series) == min(values)
    assert max(one.greatest for one in series) == max(values)
    assert sum(one.values for one in series) == len(values)
    mean = sum(one.mean * one.values for one in series) / len(values)
    assert math.isclose(mean, sum(values) / len(values), rel_tol=1e-6, abs_tol=1e-3)


def test_events_become_series_of_ranks_and_hosts() -> None:
    run = RunMetrics()
    run.add("workers_started", {"world_size": 2, "ranks": [0, 1]}, "algo-1", None, 1.0)
    run.add("timing", timing(5.0, steps=10, samples=320, input_s=2.0, load_workers=2), "algo-1", 0, 10.0)
    run.add("timing", timing(5.0, steps=10, samples=320, input_s=1.0, load_workers=2), "algo-1", 0, 15.0)
    run.add("engine", {"seconds": 5.0, "operations": 3, "late": [{"rank": 1, "seconds": 0.5}]}, "algo-1", 0, 15.0)
    fields = {"window": 5.0, "cores": 2, "cpu_s": 8.0, "channel_train_bytes": 100, "channel_train_mode": "FastFile"}
    run.add("resources", fields, "algo-1", None, 15.0)
    rank = run.ranks[0]
    total = rank.timing.total()
    assert total is not None
    assert (total.begin, total.end, total.values["input_s"], total.values["samples"]) == (5.0, 15.0, 3.0, 640)
    assert (rank.load_workers, rank.late) == (2, {1: 0.5})
    host = run.hosts["algo-1"]
    assert (host.last, host.modes) == ({"cores": 2.0}, {"train": "FastFile"})
    assert host.resources.windows[0].values == {"cpu_s": 8.0, "channel_train_bytes": 100.0}
    assert run.world_size == 2
    assert run.samples_per_second == 64.0


def test_rate_and_time_left_come_from_the_steps() -> None:
    run = RunMetrics()
    for step in range(1, 6):
        run.add("step", {"step": step, "steps": 25, "loss": 1 / step}, "algo-1", 0, 100 + step / 2)
    assert run.steps_per_second == 2.0
    assert run.seconds_left == 10.0
    assert run.metrics["loss"].last == 0.2


def test_restarted_script_starts_a_new_rate() -> None:
    run = RunMetrics()
    for at, step in ((0.0, 1), (1.0, 2), (500.0, 1), (504.0, 2)):
        run.add("step", {"step": step, "steps": 2}, "algo-1", 0, at)
    assert run.steps_per_second == 0.25


@pytest.mark.parametrize("value", [True, "nan", None, math.inf, [], {}])
def test_values_that_are_no_finite_numbers_are_left_out(value: object) -> None:
    run = RunMetrics()
    run.add("step", {"step": value, "loss": value}, "algo-1", 0, 1.0)
    run.add("step", {"step": 1, "loss": value}, "algo-1", 0, 1.0)
    run.add("timing", {"window": value, "input_s": value}, "algo-1", 0, 1.0)
    run.add("timing", {"window": 1.0, "input_s": value}, "algo-1", 0, 1.0)
    run.add("engine", {"seconds": 1.0, "late": value}, "algo-1", 0, 1.0)
    run.add("resources", {"window": 1.0, "cores": value}, "algo-1", None, 1.0)
    assert run.metrics == {}
    assert run.step == 1
    assert run.ranks[0].timing.windows[0].values == {}
    assert run.hosts["algo-1"].last == {}


def test_script_with_thousands_of_metric_names_has_64() -> None:
    run = RunMetrics()
    for step in range(1, 2000):
        run.add("step", {"step": step, f"metric_{step}": 1.0}, "algo-1", 0, float(step))
    assert len(run.metrics) == 64
