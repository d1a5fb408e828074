"""The report of a sweep: of given trials, and of real ones on the local cloud."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest

from smdp_launch.cli.render.plots.sweep_page import sweep_page
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.sweeps import SweepState, Trial
from smdp_launch.jobs.trial_curves import LossCurves
from tests.conftest import JOB, Command, write_job

HOSTILE = "</svg><script>alert(1)</script>\"'&\x1b[2J\u202e"
SVG = "{http://www.w3.org/2000/svg}"


def trial(name: str, objective: float | None, status: str = "Completed", **values: str) -> Trial:
    reason = "the script exited with code 3" if status == "Failed" else None
    return Trial(name, status, values, objective, 61.0, reason)


def state(*trials: Trial, goal: str = "minimize") -> SweepState:
    done = [one for one in trials if one.objective is not None]
    best = done[0].job if done else None
    return SweepState("tune-1", "Completed", "loss", goal, 3, trials, best, None, frozenset({"lr"}))


THREE = state(
    trial("tune-1-003", 0.25, lr="0.01", depth="4", optimizer='"adam"'),
    trial("tune-1-001", 0.75, lr="0.1", depth="2", optimizer='"sgd"'),
    trial("tune-1-002", None, "Failed", lr="0.001", depth="2", optimizer='"sgd"'),
)
CURVES = LossCurves("loss", {"tune-1-003": [(0.0, 1.0), (10.0, 0.25)], "tune-1-001": [(0.0, 1.5), (9.0, 0.75)]})


def page_of(sweep: SweepState, curves: LossCurves = CURVES) -> tuple[str, ElementTree.Element]:
    now = datetime(2026, 11, 21, tzinfo=timezone.utc)
    page = sweep_page(sweep, "3 of 3 trials ended", curves, "us-east-1", now)
    return page, ElementTree.fromstring(page.partition("\n")[2])


def table_of(root: ElementTree.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


def lines_of(root: ElementTree.Element) -> dict[str, tuple[str, list[tuple[float, float]]]]:
    """Of the first drawing: class and points by the job."""
    found = {}
    for one in next(root.iter(f"{SVG}svg")).iter(f"{SVG}polyline"):
        points = [(float(x), float(y)) for x, y in (pair.split(",") for pair in one.attrib["points"].split())]
        found[(one[0].text or "").partition(":")[0]] = (one.attrib["class"], points)
    return found


def test_table_has_all_trials_and_marks_the_best() -> None:
    page, root = page_of(THREE)
    assert table_of(root) == [
        ["", "trial", "depth", "lr", "optimizer", "loss", "status", "time"],
        ["best", "003", "4", "0.01", "adam", "0.25", "Completed", "1 min 1 s"],
        ["", "001", "2", "0.1", "sgd", "0.75", "Completed", "1 min 1 s"],
        ["", "002", "2", "0.001", "sgd", "none", "Failed", "1 min 1 s"],
    ]
    assert [one.attrib.get("class") for one in root.iter("tr")] == [None, "best", None, None]
    assert "<dt>002</dt><dd>the script exited with code 3</dd>" in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert re.findall(r"(?:src|href|url)\s*[=(]", page) == []


@pytest.mark.parametrize(("goal", "best_is_above"), [("minimize", True), ("maximize", False)])
def test_line_of_a_trial_passes_its_values(goal: str, best_is_above: bool) -> None:
    """Depth, the logarithmic learning rate, the optimizer and the result: low values are at the bottom, y is down."""
    page, root = page_of(replace(THREE, goal=goal))
    lines = lines_of(root)
    (best, top), (other, second), (failed, third) = (lines[f"tune-1-00{number}"] for number in (3, 1, 2))
    assert (best, other, failed) == ("sbest", "strial", "strial none")
    assert [len(top), len(second), len(third)] == [4, 4, 3]
    assert top[0][1] < second[0][1] == third[0][1]
    assert second[1][1] - top[1][1] == pytest.approx(top[1][1] - third[1][1])  # 0.1, 0.01 and 0.001
    assert (top[3][1] < second[3][1]) is best_is_above
    assert "Logarithmic: lr." in page
    assert "A dashed line has no result." in page


def test_losses_are_drawn_and_what_is_missing_is_said() -> None:
    page, root = page_of(THREE)
    assert len(list(root.iter(f"{SVG}svg"))) == 2
    assert "loss over time" in page
    assert "the best: tune-1-003" in page
    assert "1 trial reported no loss with its steps and is left out." in page
    page, root = page_of(THREE, LossCurves(unread={"tune-1-003": "access is denied"}))
    assert len(list(root.iter(f"{SVG}svg"))) == 1
    assert "2 trials reported no loss with their steps and are left out." in page
    assert "The log of 1 trial could not be read: access is denied." in page


@pytest.mark.parametrize(
    "value", ["", "nan", "inf", "1e308", "-1e308", "0", "-1", "1e-320", HOSTILE, "x" * 300], ids=ascii
)
def test_page_can_be_made_of_any_values(value: str) -> None:
    trials = [trial(f"a-{index}", one, lr=text) for index, (one, text) in enumerate([(1e308, value), (-1e308, "1")])]
    page, root = page_of(state(*trials, trial(HOSTILE, float("nan"), "Failed", **{HOSTILE: value})))
    assert list(root.iter("script")) == []
    assert "nan," not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)


def test_secret_values_are_starred() -> None:
    page, _ = page_of(state(trial("a", 1.0, api_token="hunter22"), trial("b", 2.0, api_token="hunter23")))
    assert "hunter" not in page


def test_sweep_without_trials_says_so() -> None:
    page, _ = page_of(replace(state(), status="InProgress"), LossCurves())
    assert "No trial has started." in page


SCRIPT = """\
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--depth", type=int)
arguments = parser.parse_args()
if arguments.depth == 2:
    sys.exit(3)
for step in range(1, 4):
    loss = (arguments.depth - 3) ** 2 + 1 / step
    print(json.dumps({"smdp_event": 1, "event": "step", "step": step, "steps": 3, "loss": loss}), flush=True)
print(f"final={loss}", flush=True)
"""
SWEEP = """\
metrics: {final: 'final=([0-9.]+)'}
sweep:
  objective: {metric: final, goal: minimize}
  strategy: grid
  parallel: 2
  ranges: {categorical: {depth: [1, 2, 3]}}
"""


@pytest.mark.runs
def test_report_of_real_trials(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, JOB + SWEEP, SCRIPT)
    here = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    ran = smdp_launch(*here, "--report", "launched.html")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "wrote launched.html" in ran.stderr
    listed = smdp_launch("trials", "--json", "--report", "page.html")
    assert listed.returncode == ExitCode.OK, listed.stderr
    found = json.loads(listed.stdout)
    for name in ("launched.html", "page.html"):
        page = (job_folder / name).read_text(encoding="utf-8")
        root = ElementTree.fromstring(page.partition("\n")[2])
        rows = table_of(root)[1:]
        jobs = [one["job"] for one in found["jobs"]]
        names = [job.removeprefix(f"{found['sweep']}-") for job in jobs]
        assert jobs[0] == found["best"]
        assert [row[:5] for row in rows] == [
            ["best", names[0], "3", "0.333333", "Completed"],
            ["", names[1], "1", "4.33333", "Completed"],
            ["", names[2], "2", "none", "Failed"],
        ]
        assert re.search(f"<dt>{names[2]}</dt><dd>[^<]*exited with code 3", page)
        compared, losses = root.iter(f"{SVG}svg")
        assert len(list(compared.iter(f"{SVG}polyline"))) == 3
        drawn = {one[0].text: one.attrib["points"].split() for one in losses.iter(f"{SVG}polyline")}
        assert {job: len(points) for job, points in drawn.items()} == {jobs[0]: 3, jobs[1]: 3}
        assert "1 trial reported no loss with its steps and is left out." in page
    refused = smdp_launch("trials", "--report", "nowhere/page.html")
    assert refused.returncode == ExitCode.ENVIRONMENT
    assert "does not exist or is not writable" in refused.stderr
