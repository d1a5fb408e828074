"""The series of a run: what they keep of its events, and that their size is bounded."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.cli.render.job.progress import ShownRun
from smdp_launch.diagnosis.verdict import diagnose
from smdp_launch.run_metrics.openmetrics import openmetrics
from smdp_launch.run_metrics.run import PHASES, RunMetrics
from smdp_launch.run_metrics.series import MetricSeries, Window, WindowSeries
from smdp_launch.run_metrics.summary import number, numbers_json, progress_text, totals, totals_text
from tests.support.numbers.run_events import BEGAN, HANG, hang_reported, metrics_of, run_events


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


def test_current_rate_excludes_the_first_window_with_the_start_of_the_worker() -> None:
    run = RunMetrics()
    run.add("timing", timing(5.0, steps=1, samples=32, other_s=4.9), "algo-1", 0, 10.0)
    assert (run.samples_per_second, run.steps_per_second) == (None, None)
    run.add("timing", timing(5.0, steps=100, samples=3200, forward_s=5.0), "algo-1", 0, 15.0)
    assert (run.samples_per_second, run.steps_per_second) == (640.0, 20.0)


def test_restarted_script_starts_a_new_rate() -> None:
    run = RunMetrics()
    for at, step in ((0.0, 1), (1.0, 2), (500.0, 1), (504.0, 2)):
        run.add("step", {"step": step, "steps": 2}, "algo-1", 0, at)
    assert run.steps_per_second == 0.25


@pytest.mark.parametrize("value", [True, "fast", None, [], {}])
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


@pytest.mark.parametrize("value", ["nan", math.nan, "inf", "-inf", -math.inf])
def test_loss_that_is_no_finite_number_replaces_the_last_one(value: object) -> None:
    run = RunMetrics()
    for step, loss in ((1, 0.5), (2, value), (3, value)):
        run.add("step", {"step": step, "loss": loss}, "algo-1", 0, float(step))
    loss = run.metrics["loss"]
    assert (loss.last, loss.shown()) == (None, f"{float(str(value))} since step 2")
    assert [one.values for one in loss] == [1]
    assert progress_text(run).startswith(f"step 3, loss {float(str(value))} since step 2")
    assert json.loads(json.dumps(numbers_json(run), allow_nan=False))["metrics"] == {"loss": None}
    written = "NaN" if "nan" in str(value) else "-Inf" if "-" in str(value) else "+Inf"
    assert f'smdp_metric{{job="j",metric="loss"}} {written}\n' in openmetrics(run, "j")
    run.add("step", {"step": 4, "loss": 0.25}, "algo-1", 0, 4.0)
    assert loss.shown() == "0.25"


def test_number_in_place_of_other_fields_is_left_out() -> None:
    run = RunMetrics()
    run.add("step", {"step": "nan", "loss": 1.0}, "algo-1", 0, 1.0)
    run.add("timing", {"window": math.inf, "input_s": 1}, "algo-1", 0, 1.0)
    run.add("timing", {"window": 1.0, "input_s": "nan"}, "algo-1", 0, 1.0)
    assert (run.metrics, run.step, run.ranks[0].timing.windows[0].values) == ({}, None, {})


def seconds_of(window: Window | None) -> float:
    assert window is not None
    return window.seconds


@pytest.mark.parametrize("jump", [86_400.0, 7.0, -7.0, -86_400.0])
def test_jump_of_the_clock_changes_no_rate(jump: float) -> None:
    run = RunMetrics()
    for second in range(1, 41):
        at = 1e9 + second + (jump if second > 20 else 0.0)
        run.add("step", {"step": second, "steps": 80}, "algo-1", 0, at)
        if second % 5 == 0:
            run.add("timing", timing(5.0, steps=5, samples=40, forward_s=5.0), "algo-1", 0, at)
    whole = totals(run)
    assert whole.steps_per_second == pytest.approx(1, rel=0.05)
    assert whole.samples_per_second == pytest.approx(8)
    assert run.samples_per_second == pytest.approx(8)
    assert run.steps_per_second == pytest.approx(1, rel=0.2)  # a jump of seconds is in it for a minute
    assert seconds_of(run.ranks[0].timing.total()) == 40
    assert diagnose(run).step_s == pytest.approx(1)
    assert diagnose(run).warm_up <= 40


def test_current_rate_after_the_clock_was_set_back_is_that_of_the_last_minute() -> None:
    run = RunMetrics()
    for second in range(5, 605, 5):
        samples = 40 if second <= 300 else 400
        at = 1e9 + second - (86_400 if second > 300 else 0)
        run.add("timing", timing(5.0, steps=5, samples=samples, forward_s=5.0), "algo-1", 0, at)
    assert run.samples_per_second == pytest.approx(80)


def test_pause_between_two_attempts_is_no_part_of_the_rate() -> None:
    run = RunMetrics()
    for begin, first in ((0.0, 1), (1000.0, 11)):
        for index in range(1, 21):
            at = 1e9 + begin + index
            run.add("step", {"step": first + index - 1, "steps": 60}, "algo-1", 0, at)
            if index % 5 == 0:
                run.add("timing", timing(5.0, steps=5, samples=40, forward_s=5.0), "algo-1", 0, at)
    whole = totals(run)
    assert whole.seconds == pytest.approx(40, abs=1)
    assert whole.steps_per_second == pytest.approx(38 / 40)
    assert totals_text(run).startswith("30 steps, 8 samples/s")


def test_continued_run_shows_its_own_steps() -> None:
    run = RunMetrics()
    for step in range(1_000_010, 1_000_110, 10):
        run.add("step", {"step": step, "steps": 2_000_000}, "algo-1", 0, 1e9 + step)
    assert totals_text(run) == "steps 1,000,010 to 1,000,100, 1 steps/s"
    each_tenth = RunMetrics()
    for step in range(10, 110, 10):
        each_tenth.add("step", {"step": step}, "algo-1", 0, 1e9 + step)
    assert totals_text(each_tenth) == "100 steps, 1 steps/s"


def test_run_that_passes_its_number_of_steps_has_no_time_left() -> None:
    run = RunMetrics()
    for step in (1, 5, 9_007_199_254_740_991):
        run.add("step", {"step": step, "steps": 3}, "algo-1", 0, 1e9 + step % 97)
    assert run.seconds_left is None
    assert "left" not in progress_text(run)


def test_single_step_has_no_rate() -> None:
    run = RunMetrics()
    run.add("step", {"step": 1, "steps": 10, "loss": 2.5}, "algo-1", 0, 1e9)
    assert (totals(run).steps_per_second, run.seconds_left) == (None, None)
    assert totals_text(run) == "1 step"
    assert progress_text(run) == "step 1 of 10, loss 2.5"


def test_script_with_thousands_of_metric_names_has_64() -> None:
    run = RunMetrics()
    for step in range(1, 2000):
        run.add("step", {"step": step, f"metric_{step}": 1.0}, "algo-1", 0, float(step))
    assert len(run.metrics) == 64


def test_negative_sums_are_left_out() -> None:
    run = RunMetrics()
    run.add("timing", {"window": 5.0, "steps": -4, "samples": -8, "input_s": -5.0, "other_s": 5.0}, "algo-1", 0, 10.0)
    run.add("resources", {"window": 5.0, "cpu_s": -1.0}, "algo-1", None, 10.0)
    assert run.ranks[0].timing.windows[0].values == {"other_s": 5.0}
    assert run.hosts["algo-1"].resources.windows[0].values == {}
    assert (totals_text(run), progress_text(run)) == ("", "")


def test_enormous_number_has_an_exponent() -> None:
    assert (number(-1e300), number(123_456_789), number(1e15)) == ("-1e+300", "123,456,789", "1e+15")


@pytest.mark.parametrize("each", [1.0, 40.0])
def test_stale_report_of_a_step_gives_no_rate(each: float) -> None:
    run = RunMetrics()
    for step in range(1, 11):
        run.add("step", {"step": step, "steps": 100}, "algo-1", 0, 1e9 + each * step)
    assert run.seconds_left == pytest.approx(90 * each)
    last = 1e9 + 10 * each
    run.add("timing", timing(5.0, forward_s=5.0), "algo-1", 0, last + max(60.0, 3 * each))
    assert run.steps_per_second == pytest.approx(1 / each)
    run.add("timing", timing(5.0, forward_s=5.0), "algo-2", 1, last + 86_400)  # its clock is another one
    assert run.steps_per_second == pytest.approx(1 / each)
    run.add("timing", timing(5.0, forward_s=5.0), "algo-1", 0, last + max(60.0, 3 * each) + 5)
    assert (run.steps_per_second, run.samples_per_second, run.seconds_left) == (None, None, None)
    assert "smdp_steps_per_second" not in openmetrics(run, "j")
    run.add("step", {"step": 11, "steps": 100}, "algo-1", 0, last + 300)
    assert run.steps_per_second is not None


def test_hang_replaces_the_rate_until_it_is_over() -> None:
    run = metrics_of([*run_events(lambda _: {"forward": 0.1}), *HANG])
    for step in (1, 2):
        run.add("step", {"step": step, "steps": 100}, "algo-1", 0, BEGAN + step)
    doing = "rank 2 on algo-2 is in forward at load (data.py:14)"
    assert progress_text(run) == f"step 2 of 100, hangs since 14:14:10 UTC: {doing}"
    assert ShownRun(run).numbers(60) == "step 2/100  hangs since 14:14:10 UTC: rank 2"
    assert 'smdp_hanging{job="j"} 1\n' in openmetrics(run, "j")
    ranks = [{"rank": 2, "host": "algo-2", "doing": "is in forward at load (data.py:14)"}]
    assert numbers_json(run)["hang"] == {"since": BEGAN + 50, "ranks": ranks}
    for host in ("algo-1", "algo-2"):
        run.add("hang", {"what": "over", "seconds": 9.0}, host, None, BEGAN + 200)
    assert (run.hang, run.steps_per_second, numbers_json(run)["hang"]) == (None, 10.0, None)
    assert 'smdp_hanging{job="j"} 0\n' in openmetrics(run, "j")


@pytest.mark.parametrize(
    ("ranks", "doing"),
    [
        ([(0, "exchange", [1]), (1, "exchange", [0, 1])], "rank 1 on algo-1 waits"),
        ([(0, "exchange", [3]), (1, "exchange", [3])], "rank 0 on algo-1 waits and rank 1 on algo-1 waits"),
        ([(0, "exchange", [1]), (1, None, [])], "rank 1 on algo-1 waits"),
        (
            [(rank, "input", None) for rank in range(5)],
            "rank 0 on algo-1 waits, rank 1 on algo-1 waits, rank 2 on algo-1 waits and 2 more ranks hang",
        ),
        ([("0", None, [1]), (True, None, None)], None),
        (None, None),
    ],
)
def test_hang_names_the_ranks_that_the_others_wait_for(ranks: Any, doing: str | None) -> None:
    run = RunMetrics()
    fields = [{"rank": one, "phase": phase, "waits_for": waits, "doing": "waits"} for one, phase, waits in ranks or []]
    run.add("hang", {"what": "reported", "ranks": fields if ranks else ranks}, "algo-1", None, 1e300)
    assert (run.hang.doing if run.hang is not None else None) == doing
    assert progress_text(run) == ("" if doing is None else f"hangs since 23:59:59 UTC: {doing}")


def test_first_host_names_the_ranks_of_a_hang() -> None:
    run = RunMetrics()
    waits = {0: [1], 1: [2], 2: [3], 3: []}
    reports = [
        hang_reported(host, BEGAN, **{f"rank_{rank}": ("exchange", "waits", waits[rank]) for rank in ranks})
        for host, ranks in {"algo-1": (0, 1), "algo-2": (2, 3)}.items()
    ]

    def named(ranks: object) -> list[int]:
        run.add("hang_cause", {"ranks": ranks}, "algo-1", None, BEGAN + 2)
        return [one.rank for one in run.hang.ranks] if run.hang is not None else []

    for report in reports:
        run.add(*report)
    assert (named([3]), named([2, 3, 9])) == ([3], [2, 3])
    assert named([]) == named([9, True, "3"]) == [0, 1, 2, 3]
    assert named(None) == [1, 2, 3]
    assert named([3]) == [3]
    run.add("hang", {"what": "over"}, "algo-2", None, BEGAN + 3)
    assert run.hang is not None
    assert [one.rank for one in run.hang.ranks] == [0, 1]
    run.add("hang", {"what": "over"}, "algo-1", None, BEGAN + 3)
    assert run.hang is None
    run.add(*reports[1])
    assert run.hang is not None
    assert [one.rank for one in run.hang.ranks] == [3]


def test_hang_ends_with_the_last_step() -> None:
    run = metrics_of(HANG)
    run.add("step", {"step": 99, "steps": 100}, "algo-1", 0, BEGAN + 120)
    assert run.hang is not None
    run.add("step", {"step": 100, "steps": 100}, "algo-1", 0, BEGAN + 121)
    assert run.hang is None


def test_mean_rates_leave_out_the_start_and_a_hang_at_the_end() -> None:
    run = RunMetrics()
    seconds = [(38.0, 6), *[(5.0, 150)] * 6, (5.0, 10), *[(5.0, 0)] * 20]
    at = 1e9
    for window, steps in seconds:
        at += window
        run.add("timing", timing(window, steps=steps, batches=steps, samples=8 * steps), "algo-1", 0, at)
    assert totals_text(run) == "916 steps, 240 samples/s, 30 steps/s"
