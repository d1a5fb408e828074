"""The follower parses log lines, whatever a script prints."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from smdp_launch.cli.render.job.follow import FollowView, JobLayout
from smdp_launch.jobs.logs.messages import JobEvent, LogLine, read_line
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.planning.plan import LocalRun
from tests.conftest import write_job
from tests.support.jobs.plans import plan_of


@pytest.mark.parametrize(
    ("message", "rank", "text"),
    [
        ("[algo-1:3] hello", 3, "hello"),
        ("[algo-1] hello", None, "hello"),
        ("[algo-1:3] ", 3, ""),
        ("hello", None, "hello"),
        ("[not a prefix] hello", None, "[not a prefix] hello"),
        ("[algo-1:" + "9" * 5000 + "] x", None, "[algo-1:" + "9" * 5000 + "] x"),
        ('[algo-1:0] {"smdp_event": broken', 0, '{"smdp_event": broken'),
        ('{"smdp_event":' + "[" * 100_000, None, '{"smdp_event":' + "[" * 100_000),
        ('{"smdp_event": 1, "event": 7}', None, '{"smdp_event": 1, "event": 7}'),
    ],
    ids=range(9),
)
def test_prefix_of_line_gives_its_writer(message: str, rank: int | None, text: str) -> None:
    assert read_line("algo-1", message, 5) == LogLine("algo-1", rank, text, 5)


def test_event_lines_are_parsed() -> None:
    line = {"smdp_event": 1, "event": "step", "step": 1, "steps": 2, "loss": 0.5}
    assert read_line("algo-2", f"[algo-2:0] {json.dumps(line)}", 5) == JobEvent("algo-2", "step", line, 5, worker=0)


def test_values_without_json_or_utf_8_form_are_replaced() -> None:
    metrics = '"loss": NaN, "most": [1e999, -Infinity], "\\ud800x": "\\ud83d\\ude00 \\udc00"'
    seen = read_line("algo-1", f'{{"smdp_event": 1, "event": "step", {metrics}}}', 5)
    assert isinstance(seen, JobEvent)
    wanted = {"loss": "nan", "most": ["inf", "-inf"], "\ufffdx": "\U0001f600 \ufffd"}
    assert seen.fields == {"smdp_event": 1, "event": "step", **wanted}


@given(st.text())
def test_any_text_is_read_as_a_line(message: str) -> None:
    assert isinstance(read_line("algo-1", message, 0), LogLine | JobEvent)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("step", [True, -1, 10**400, 1.5, None, "3", [1]])
def test_invalid_steps_are_not_shown(tmp_path: Path, terminal: bool, step: object) -> None:
    plan = plan_of(write_job(tmp_path), LocalRun(1, 1))
    screen = io.StringIO()
    with FollowView(JobLayout.of_plan(plan), Console(file=screen, force_terminal=terminal, width=80)) as view:
        for steps in (step, 10):
            view.show(JobEvent("algo-1", "step", {"step": step, "steps": steps}, 0))
        view.show(JobEvent("algo-9", "worker_exit", {"rank": {}, "error": None}, 0))
        view.show(read_line("algo-9", "[algo-9:77] \x1b[31mred\x1b[2Jgone", 0))
    assert "step 1/10" not in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()


@pytest.mark.parametrize(
    ("status", "secondary", "code"),
    [
        ("Completed", "Completed", 0),
        ("Failed", "Failed", 10),
        ("Stopped", "Stopped", 11),
        ("Stopped", "MaxRuntimeExceeded", 12),
        ("Stopped", "MaxWaitTimeExceeded", 13),
        ("Stopped", "Interrupted", 13),
    ],
)
def test_each_final_status_has_its_exit_code(status: str, secondary: str, code: int) -> None:
    assert outcome({"TrainingJobStatus": status, "SecondaryStatus": secondary}).exit_code == code


def test_control_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    drawn = io.StringIO()
    layout = JobLayout.of_plan(plan_of(write_job(tmp_path)))
    view = FollowView(layout, Console(file=drawn, force_terminal=False, width=200))
    for message in (
        "[algo-1:0] a\x1b]0;title\x07b\x1b[2Jc\x0ed\x9be\x1b[31mred\x1b[0m\x00\tf",
        '[algo-1:0] {"smdp_event": 1, "event": "step", "step": 1, "steps": 2, "note": "x\\u001b[2Jy"}',
        '[algo-1] {"smdp_event": 1, "event": "worker_exit", "rank": 0, "error": "rank 0 on algo-1 ended\\u001b[H"}',
    ):
        view.show(read_line("algo-1", message, 0))
    lines = drawn.getvalue().splitlines()
    assert re.search(r"\| abcdered\s+f$", lines[0])
    assert lines[1] == "step 1/2  note xy"
    assert lines[2] == "rank 0 on algo-1 ended"


def test_progress_without_terminal_is_printed_each_tenth_and_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("smdp_launch.cli.render.job.follow.time.monotonic", lambda: now)
    drawn = io.StringIO()
    layout = JobLayout.of_plan(plan_of(write_job(tmp_path)))
    view = FollowView(layout, Console(file=drawn, force_terminal=False, width=200))
    for step in range(1, 301):
        view.show(JobEvent("algo-1", "step", {"step": step, "steps": 1000}, 0))
        now += 1.0
    assert drawn.getvalue().split() == [
        word for step in (1, 61, 100, 160, 200, 260, 300) for word in ("step", f"{step}/1000")
    ]
