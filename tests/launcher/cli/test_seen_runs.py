"""What follow, status, compare and the notebook show of a run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

import smdp_launch.api  # noqa: F401 - registers the cards
from smdp_launch.cli.render.job.compare import compare_json, print_comparison
from smdp_launch.cli.render.job.follow import FollowView
from smdp_launch.cli.render.job.launch import FollowResult, print_end
from smdp_launch.cli.render.job.progress import ShownRun
from smdp_launch.cli.render.job.status import RunNow, print_status, status_json
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.sparkline import sparkline
from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.jobs.run import Run
from smdp_launch.jobs.status.cost import usd
from smdp_launch.notebook_view import LiveView
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.summary import totals
from tests.conftest import ROOT
from tests.support.numbers.synthetic_runs import BEGAN, NAME, synthetic_metrics, synthetic_run


def schema_errors(name: str, document: dict[str, Any]) -> list[str]:
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    return [one.message for one in Draft202012Validator(schema).iter_errors(json.loads(json.dumps(document)))]


def running(steps: int = 120) -> RunMetrics:
    metrics = synthetic_metrics(steps=steps)
    metrics.steps = 310
    return metrics


def in_progress(metrics: RunMetrics) -> Run:
    return synthetic_run(metrics, TrainingJobStatus="InProgress", SecondaryStatus="Training")


def job(where: str = "us-east-1") -> Job:
    return Job(NAME, where, None, lambda: pytest.fail("a view makes no call"))


@pytest.mark.parametrize("columns", [80, 140])
def test_numbers_beside_the_bar_fit_the_terminal(columns: int, snapshot: SnapshotAssertion) -> None:
    run = synthetic_run(running())
    shown = ShownRun(run.metrics, run.description, 32.77)
    text = shown.numbers(columns - 26)
    assert len(text) <= columns - 26
    assert text == snapshot
    shown.waiting = "waiting since 12:00:00 UTC"
    assert shown.numbers(columns - 26) == "waiting since 12:00:00 UTC"


def test_rate_of_a_job_without_step_events_comes_from_its_timing() -> None:
    metrics = synthetic_metrics()
    for one in (metrics.metrics, metrics.progress.bins, metrics._reports):
        one.clear()
    metrics.step = metrics.steps = None
    text = ShownRun(metrics).numbers(60)
    assert text == "1,280 samples/s"
    assert metrics.steps_per_second == pytest.approx(10)


def test_rate_is_known_where_a_window_is_longer_than_a_minute() -> None:
    metrics = synthetic_metrics(steps=10_000, windows=10)
    assert metrics.samples_per_second == pytest.approx(1280)


@pytest.mark.parametrize(
    ("values", "encoding", "line"),
    [
        ([], "utf-8", ""),
        ([1.0], "utf-8", "▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "utf-8", "▁▂▃▄▅▆▇█"),
        ([0, 1, 2, 3, 4, 5, 6], "ascii", "_.-=+*#"),
        ([3] * 120, "no such encoding", "___"),
        ([1e307, -1e307], "utf-8", "█▁"),
    ],
)
def test_sparkline_shows_the_course_of_values(values: list[float], encoding: str, line: str) -> None:
    assert sparkline(values, 8 if len(values) < 9 else 3, encoding) == line


def test_lines_without_a_terminal_have_rate_and_time_left() -> None:
    out = io.StringIO()
    shown = ShownRun()
    view = FollowView(None, Console(file=out, width=200, highlight=False), run=shown)
    for step in range(1, 101):
        fields = {"step": step, "steps": 100, "loss": 1 / step}
        shown.metrics.add("step", fields, "algo-1", 0, BEGAN.timestamp() + step)
        view.show(JobEvent("algo-1", "step", fields, 0, worker=0))
    lines = out.getvalue().splitlines()
    assert lines[0] == "step 1/100  loss 1"
    assert lines[5] == "step 50/100  loss 0.02  1 steps/s  50 s left"
    assert lines[-1] == "step 100/100  loss 0.01  1 steps/s"
    assert len(lines) == 11


def completed() -> Run:
    return synthetic_run(synthetic_metrics())


def slower() -> Run:
    changes = {"HyperParameters": {"lr": "0.2", "epochs": "3", "api_token": "hunter2"}}
    return synthetic_run(synthetic_metrics(steps=200, windows=10), **changes)


def show_end() -> None:
    run = completed()
    ended = outcome({"TrainingJobStatus": "Completed", "TrainingTimeInSeconds": 91})
    print_end(NAME, "us-east-1", FollowResult(ended, metrics=run.metrics))


def show_running() -> None:
    run = in_progress(running())
    print_status(job(), run.description, None, RunNow(run.metrics, run.usd))


def show_ended() -> None:
    run = completed()
    print_status(job(), run.description, None, RunNow(run.metrics, run.usd))


def show_unknown() -> None:
    run = in_progress(running())
    print_status(job(), run.description, None, RunNow(ServiceProblem("the log cannot be read: AccessDenied")))


def show_comparison() -> None:
    print_comparison(completed(), slower())


VIEWS: dict[str, Callable[[], None]] = {
    "end": show_end,
    "running": show_running,
    "ended": show_ended,
    "log cannot be read": show_unknown,
    "compare": show_comparison,
}


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("view", VIEWS)
def test_view_matches_the_snapshot(
    view: str,
    columns: int,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1", "TTY_COMPATIBLE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("smdp_launch.jobs.status.description.end_of", lambda _: BEGAN)
    VIEWS[view]()
    assert capsys.readouterr().out == snapshot


def test_status_has_the_numbers_of_the_run() -> None:
    run = in_progress(running())
    document = status_json(job(), run.description, None, RunNow(run.metrics, 1.5))
    assert schema_errors("status", document) == []
    assert document["usd"] == 1.5
    numbers = document["numbers"]
    assert (numbers["step"], numbers["steps"]) == (120, 310)
    assert numbers["samples_per_second"] == pytest.approx(1280)
    assert numbers["seconds_left"] == pytest.approx(19, abs=0.1)
    assert sum(numbers["time_shares"].values()) == pytest.approx(1)
    unknown = status_json(job(), run.description, None, RunNow(ServiceProblem("no permission")))
    assert schema_errors("status", unknown) == []
    assert (unknown["numbers"], unknown["numbers_problem"]) == (None, "no permission")


def test_comparison_shows_the_steps_of_jobs_that_report_none(capsys: pytest.CaptureFixture[str]) -> None:
    runs = completed(), slower()
    for run in runs:
        run.metrics.step = None
        run.metrics.progress.bins.clear()
    print_comparison(*runs)
    (row,) = (one.split() for one in capsys.readouterr().out.splitlines() if one.startswith("steps "))
    assert row == ["steps", *(str(totals(run.metrics).steps) for run in runs)] and "None" not in row


def test_comparison_names_the_settings_that_differ_without_secrets() -> None:
    document = compare_json(completed(), slower())
    assert schema_errors("compare", document) == []
    assert document["settings"]["hyperparameter lr"] == {"a": "0.1", "b": "0.2"}
    assert set(document["settings"]) == {"hyperparameter lr", "hyperparameter api_token"}
    assert "hunter2" not in json.dumps(document)
    assert document["b"]["numbers"]["step"] == 200
    assert document["a"]["usd"] == pytest.approx(32.77 * 2 * document["a"]["billable_seconds"] / 3600)


def test_cost_counts_from_the_start_of_training() -> None:
    run = synthetic_run(running(), BillableTimeInSeconds=None)
    seconds = sum(one.seconds for one in run.description.steps)
    assert usd(run.description, 10.0) == pytest.approx(10.0 * 2 * seconds / 3600)
    waiting = synthetic_run(running(), BillableTimeInSeconds=None, TrainingStartTime=None)
    assert usd(waiting.description, 10.0) == 0
    assert usd(run.description, None) is None


def test_card_of_a_job_shows_its_numbers_and_makes_no_call() -> None:
    shown = job()
    shown.numbers = running()
    shown.last_seen = "Training"
    card = shown._repr_html_()
    assert card is not None
    assert "<dd>step 120 of 310, loss 0.1" in card
    assert "1,280 samples/s" in card
    assert shown.summary().startswith(f"{NAME}: Training, step 120 of 310, loss ")


def test_live_view_outside_a_notebook_prints_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = job()
    view = LiveView(shown, shown.summary)
    view.update()
    view.update()
    shown.last_seen = "Training"
    view.update()
    assert capsys.readouterr().out == f"{NAME}: Submitted\n{NAME}: Training\n"
